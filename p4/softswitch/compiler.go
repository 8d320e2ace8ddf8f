// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"crypto/sha256"
	"sync"
)

// Compiler compiles every program once for all switches. The zero value is ready; it may be used
// from any goroutine.
type Compiler struct {
	mu       sync.Mutex
	programs map[[sha256.Size]byte]*Program // by their BMv2 JSON
}

// Compile returns the program that it has compiled from the same JSON, or compiles it as the
// function Compile does.
func (c *Compiler) Compile(json []byte) (*Program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := sha256.Sum256(json)
	if p := c.programs[key]; p != nil {
		return p, nil
	}
	p, err := Compile(json)
	if err != nil {
		return nil, err
	}
	if c.programs == nil {
		c.programs = map[[sha256.Size]byte]*Program{}
	}
	c.programs[key] = p
	return p, nil
}
