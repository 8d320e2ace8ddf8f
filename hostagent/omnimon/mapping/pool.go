// SPDX-License-Identifier: Apache-2.0

package mapping

// Pool assigns the mappings of a share to flows: an unused mapping if one is left, otherwise the
// mapping that was assigned the longest ago. It is not safe for concurrent use.
type Pool struct {
	share *Share
	fresh uint32 // mappings from here on have never been assigned
	used  int    // mappings with at least one flow
	flows []uint32
	// free are returned mappings without flows: a queue, so that a mapping rests before its next
	// use. recent are mappings with flows, by their latest assignment.
	free, recent list
	links        []link
}

type link struct{ next, previous uint32 }

// list is a doubly linked list of mappings, by number plus one; 0 is none.
type list struct{ first, last uint32 }

// NewPool returns a pool for at most flows flows at a time.
func NewPool(share *Share, flows int) *Pool {
	n := min(share.Len(), uint64(flows))
	return &Pool{share: share, flows: make([]uint32, n), links: make([]link, n+1)}
}

// Take assigns a mapping to a new flow and returns its number and slots.
func (p *Pool) Take() (number uint32, slots Slots) {
	switch {
	case int(p.fresh) < len(p.flows):
		number = p.fresh
		p.fresh++
	case p.free.first != 0:
		number = p.free.first - 1
		p.remove(&p.free, number)
	default:
		number = p.recent.first - 1
		p.remove(&p.recent, number)
	}
	if p.flows[number] == 0 {
		p.used++
	}
	p.flows[number]++
	p.append(&p.recent, number)
	return number, p.share.At(uint64(number))
}

// Assign records that another allocator, which follows the same order, assigned a mapping.
func (p *Pool) Assign(number uint32) {
	for ; p.fresh <= number; p.fresh++ {
		p.append(&p.free, p.fresh)
	}
	if p.flows[number] == 0 {
		p.used++
		p.remove(&p.free, number)
	} else {
		p.remove(&p.recent, number)
	}
	p.flows[number]++
	p.append(&p.recent, number)
}

// Cycle appends all mappings in the order in which Take assigns them after the unused ones: those
// with flows, then the unused ones.
func (p *Pool) Cycle(order []uint32) []uint32 {
	follow := func(l *list) {
		for id := l.first; id != 0; id = p.links[id].next {
			order = append(order, id-1)
		}
	}
	follow(&p.recent)
	for n := p.fresh; int(n) < len(p.flows); n++ {
		order = append(order, n)
	}
	follow(&p.free)
	return order
}

// Return ends the assignment of the mapping to one flow.
func (p *Pool) Return(number uint32) {
	if p.flows[number]--; p.flows[number] == 0 {
		p.used--
		p.remove(&p.recent, number)
		p.append(&p.free, number)
	}
}

// Used is the count of mappings with at least one flow.
func (p *Pool) Used() int { return p.used }

// InUse reports whether a flow has the mapping.
func (p *Pool) InUse(number uint32) bool { return p.flows[number] > 0 }

// Shared reports whether several flows have the mapping.
func (p *Pool) Shared(number uint32) bool { return p.flows[number] > 1 }

func (p *Pool) append(l *list, number uint32) {
	id := number + 1
	p.links[id] = link{previous: l.last}
	if l.last != 0 {
		p.links[l.last].next = id
	} else {
		l.first = id
	}
	l.last = id
}

func (p *Pool) remove(l *list, number uint32) {
	id := number + 1
	k := p.links[id]
	if k.previous != 0 {
		p.links[k.previous].next = k.next
	} else {
		l.first = k.next
	}
	if k.next != 0 {
		p.links[k.next].previous = k.previous
	} else {
		l.last = k.previous
	}
}
