// Command selftests runs the kernel's own tests of network drivers (tools/testing/selftests/drivers/net and hw below
// it, of Debian's linux-source-6.12) in a guest: on cxkit's card, and on QEMU's own cards in the same guest.
//
//	go run ./internal/vmtest/selftests -fetch                  fetch what is missing, about 500 MB, and run
//	go run ./internal/vmtest/selftests -kinds mlx5_core        the ConnectX alone
//	go run ./internal/vmtest/selftests -tests 'rss_ctx|csum'   a choice
//	go run ./internal/vmtest/selftests -write docs/selftests.md
//
// It takes a C compiler: one of the tests is a C program. The exit status is 1 if a case fails on the ConnectX that
// does not fail on every other card.
package main
