// Package layout decides where on pages the frames of a receive ring go, and when a page is used again.
//
// A fragment is the room for one frame. It is named by the number of its first unit in the arena. A
// page counts references: one for each fragment that the ring or the application has, and one of the
// layout's own while it means to use the page again. At none it goes back to the allocator. A page belongs
// to the queue that took it, and only that queue's owner touches its count; others who release a fragment
// leave it, in batches, in the queue's inbox. So no frame costs an atomic access.
//
// Layouts differ in which fragments follow one another in the ring, and in what becomes of their pages
// (Eric Dumazet, "mlx4: Better use of order-0 pages in RX path", 2017, and what Linux had before, mlx4
// en_rx.c of 5.11):
//
//	PerSlot   a page for each slot, given away with its frame
//	Flip      a page for each slot; the next frame goes to the page's other half, if that is free
//	Halves    neighbouring slots share a page; received pages are in quarantine
//	Striding  a block of pages of a high order, filled frame by frame, as multi-packet WQEs are
//	Headroom  a page for each slot with room in front of the frame, for programs that rewrite frames
//
// Halves keeps pages in a circle twice as large as the ring, half of it posted, half of it in quarantine:
//
//	          cursor: looks at the oldest page in quarantine
//	            │       count back to one ──> its fragments go to the ring again (recycled)
//	            v       else ──> left to whoever has it; a fresh page takes its place (missed)
//	┌───────────┬──────────────────────┐
//	│ posted    │ received, quarantine │  <─ a received page stays at its place in the circle
//	└───────────┴──────────────────────┘
//
// A page that the host would rather have elsewhere (pages.Allocator.Unfit) has no reference of the layout's:
// it goes back when its frames are released.
//
// Fresh pages are allocated in blocks of the order that worked last and split. An allocation that fails
// lowers the order at once, down to single pages; every RecoverPeriod it rises by one.
package layout
