# edits pagealloc.c
# Linux 6.1 takes what firmware offers. This takes at most 50,000 pages back at once; firmware offers the rest again.
s/^\treq->npages = npages;/\treq->npages = npages < -50000 ? -50000 : npages;/
