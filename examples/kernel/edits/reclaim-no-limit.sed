# edits pagealloc.c
# Linux 6.12 takes at most 50,000 pages back at once. This takes what firmware offers, as Linux did before.
s/^\treq->npages = max_t(s32, npages, MAX_RECLAIM_NPAGES);/\treq->npages = npages;/
