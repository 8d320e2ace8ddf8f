// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// piece is what was counted in one network, as a file of -keep.
type piece struct {
	Scenario string // the drawn scenario
	Played   string // commit and day, as evidence.Run names them
	Tally    *tally
}

// file names the file of a network's piece.
func (r *run) file(t *trial) string {
	kind := "healthy"
	if t.faulty {
		kind = "faults"
	}
	return filepath.Join(r.keep, fmt.Sprintf("%s-%s-%s-%d-%g.json", t.algorithm.name, t.topology, kind, t.seed, r.share))
}

// load returns the piece of a network that was played before; nil if there is none.
func (r *run) load(t *trial) (*piece, error) {
	if r.keep == "" {
		return nil, nil
	}
	b, err := os.ReadFile(r.file(t))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	p := &piece{Tally: newTally()}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("%s: the file was cut or changed; remove it to play the network again: %w", r.file(t), err)
	}
	if p.Scenario != t.text {
		return nil, fmt.Errorf("%s: the seed drew another network then; remove the file", r.file(t))
	}
	return p, nil
}

// store writes the piece of a network in one step: a run that is ended leaves no part of it.
func (r *run) store(t *trial, p *piece) error {
	if r.keep == "" {
		return nil
	}
	b, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.keep, 0o755); err != nil { //nolint:gosec // counts are no secret
		return err
	}
	name := r.file(t)
	if err := os.WriteFile(name+".new", b, 0o644); err != nil { //nolint:gosec // counts are no secret
		return err
	}
	return os.Rename(name+".new", name)
}

// sum is what was counted in a draw.
type sum struct {
	seed    uint64
	tallies map[string]*tally // by plugin
	runs    map[string]bool   // commit and day of each network
	played  int               // networks that count
	all     int               // networks that were drawn
}

func newSum() *sum { return &sum{tallies: map[string]*tally{}, runs: map[string]bool{}} }

func (s *sum) tally(plugin string) *tally {
	if s.tallies[plugin] == nil {
		s.tallies[plugin] = newTally()
	}
	return s.tallies[plugin]
}

func (s *sum) add(plugin string, p *piece) {
	s.tally(plugin).add(p.Tally)
	s.played++
	run, _, _ := strings.Cut(p.Played, ", load") // the clock is virtual
	s.runs[run] = true
}

// together adds draws up.
func together(draws []*sum) *sum {
	all := newSum()
	for _, d := range draws {
		for name, t := range d.tallies {
			all.tally(name).add(t)
		}
	}
	return all
}
