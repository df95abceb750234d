package steer

import (
	"cmp"
	"slices"
)

// blockSize is the most groups of a block.
const blockSize = 512

// ranges are a table's groups in the order of their indices, in blocks: one list would be moved as a whole for
// each group that comes or goes.
type ranges struct {
	blocks [][]*Group // none is empty
	n      int
}

// at is the place of the first group that ends at or after an index; behind the last block if there is none.
func (r *ranges) at(index uint32) (block, place int) {
	ends := func(g *Group, index uint32) int { return cmp.Compare(g.end, index) }
	block, _ = slices.BinarySearchFunc(r.blocks, index, func(b []*Group, index uint32) int { return ends(b[len(b)-1], index) })
	if block < len(r.blocks) {
		place, _ = slices.BinarySearchFunc(r.blocks[block], index, ends)
	}
	return block, place
}

// meets returns the first group that has an index from start to end, nil if there is none.
func (r *ranges) meets(start, end uint32) *Group {
	block, place := r.at(start)
	if block == len(r.blocks) || r.blocks[block][place].start > end {
		return nil
	}
	return r.blocks[block][place]
}

// add puts in a group that meets no other.
func (r *ranges) add(g *Group) {
	r.n++
	block, place := r.at(g.start)
	if block == len(r.blocks) {
		if block == 0 {
			r.blocks = append(r.blocks, []*Group{g})
			return
		}
		block, place = block-1, len(r.blocks[block-1])
	}
	b := slices.Insert(r.blocks[block], place, g)
	r.blocks[block] = b
	if len(b) > blockSize {
		r.blocks[block] = slices.Clone(b[:blockSize/2])
		r.blocks = slices.Insert(r.blocks, block+1, slices.Clone(b[blockSize/2:]))
	}
}

// remove takes out a group that is there.
func (r *ranges) remove(g *Group) {
	r.n--
	block, place := r.at(g.start)
	r.blocks[block] = slices.Delete(r.blocks[block], place, place+1)
	if len(r.blocks[block]) == 0 {
		r.blocks = slices.Delete(r.blocks, block, block+1)
	}
}
