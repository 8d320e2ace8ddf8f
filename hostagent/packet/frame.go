// SPDX-License-Identifier: Apache-2.0

package packet

// Headroom is the room in front of a frame that a header may need. A frame with less is copied.
const Headroom = 64

// Frame is a frame with room in front of it, so that a header can be inserted behind the link layer
// by moving the link layer only.
type Frame struct {
	buffer  []byte
	start   int
	dropped bool
}

// NewFrame copies data into a frame with Headroom.
func NewFrame(data []byte) *Frame {
	f := new(Frame)
	f.Set(data)
	return f
}

// Set replaces the contents of the frame by a copy of data and restores the headroom. It reuses the
// memory of the frame.
func (f *Frame) Set(data []byte) {
	if n := Headroom + len(data); cap(f.buffer) < n {
		f.buffer = make([]byte, n)
	} else {
		f.buffer = f.buffer[:n]
	}
	f.start, f.dropped = Headroom, false
	copy(f.buffer[Headroom:], data)
}

// Drop ends the frame: nothing receives it.
func (f *Frame) Drop() { f.dropped = true }

// Dropped reports whether Drop was called since the last Set.
func (f *Frame) Dropped() bool { return f.dropped }

// Bytes returns the frame. The slice is valid until the frame changes.
func (f *Frame) Bytes() []byte { return f.buffer[f.start:] }

// Insert makes room for n bytes at offset at, which is at most the length of the frame, and returns
// it. The bytes before the offset move to the front.
func (f *Frame) Insert(at, n int) []byte {
	if f.start < n {
		f.Set(append([]byte(nil), f.Bytes()...))
		if f.start < n {
			f.buffer = append(make([]byte, n), f.buffer...)
			f.start += n
		}
	}
	old := f.start
	f.start -= n
	copy(f.buffer[f.start:], f.buffer[old:old+at])
	return f.buffer[f.start+at : f.start+at+n]
}

// Remove removes n bytes at offset at; at+n is at most the length of the frame.
func (f *Frame) Remove(at, n int) {
	copy(f.buffer[f.start+n:f.start+n+at], f.buffer[f.start:f.start+at])
	f.start += n
}
