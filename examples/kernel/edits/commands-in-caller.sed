# edits cmd.c
# Linux 6.12 queues every command that waits for its answer on an ordered workqueue, but for those about pages. This
# has the caller hand it to the card; commands with a callback stay on the queue.
s/^\tif (page_queue) {$/\tif (page_queue || !callback) {/
