// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/sha256"
	"sync"

	"github.com/netsketch/netsketch/p4/softswitch"
)

// Compiler compiles every program once for all switches of one or several networks. The zero value
// is ready; it may be used from any goroutine.
type Compiler struct {
	mu       sync.Mutex
	programs map[[sha256.Size]byte]*softswitch.Program // by their BMv2 JSON
}

func (c *Compiler) compile(json []byte) (*softswitch.Program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := sha256.Sum256(json)
	if p := c.programs[key]; p != nil {
		return p, nil
	}
	p, err := softswitch.Compile(json)
	if err != nil {
		return nil, err
	}
	if c.programs == nil {
		c.programs = map[[sha256.Size]byte]*softswitch.Program{}
	}
	c.programs[key] = p
	return p, nil
}
