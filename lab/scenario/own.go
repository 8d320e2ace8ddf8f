// SPDX-License-Identifier: Apache-2.0

// The user's own programs and plugins, from files, and how their results are scored.

package scenario

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/lab/scenario/groundtruth"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/scenario/scoring"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/settings/yaml"
	"github.com/netsketch/netsketch/sketch/flow"
)

// algorithms returns the algorithms that are scored, those of Scoring included.
func (s *Scenario) algorithms() []score.Algorithm {
	all := Algorithms()
	for i := range s.Scoring {
		all = append(all, s.Scoring[i].Algorithm(len(s.Programs) == 0))
	}
	return all
}

// checkScoring checks Scoring.
func (s *Scenario) checkScoring(errs *settings.KeyErrors) {
	for i, c := range s.Scoring {
		if slices.ContainsFunc(Algorithms(), func(a score.Algorithm) bool { return a.Plugin == c.Plugin }) {
			errs.Add(fmt.Sprintf("scoring[%d].plugin", i), "%s is scored without a declaration", c.Plugin)
		}
		if first := slices.IndexFunc(s.Scoring, func(o scoring.Scoring) bool { return o.Plugin == c.Plugin }); first < i {
			errs.Add(fmt.Sprintf("scoring[%d].plugin", i), "%s has a declaration in scoring[%d]; add the measures there, or "+
				"play another scenario with this one", c.Plugin, first)
		}
		for j, m := range c.Measures {
			key := fmt.Sprintf("scoring[%d].measures[%d]", i, j)
			if first := slices.IndexFunc(c.Measures, func(o scoring.Measure) bool { return o.Name == m.Name }); first < j {
				errs.Add(key+".name", "measures[%d] has the name %q, too; the report tells measures apart by name", first, m.Name)
			}
			if scoring.Stats[m.Stat] == nil {
				errs.Add(key+".stat", "expected %s; found %q", settings.OneOf(slices.Sorted(maps.Keys(scoring.Stats))), m.Stat)
			}
			if groundtruth.Named[m.Truth] == nil && m.Truth != groundtruth.Paths {
				errs.Add(key+".truth", "expected %s; found %q",
					settings.OneOf(append(slices.Sorted(maps.Keys(groundtruth.Named)), groundtruth.Paths)), m.Truth)
			}
			if m.Leaf == "" && slices.Contains(scoring.Values, m.Stat) {
				errs.Add(key+".leaf", "%s compares the values of a leaf; name it", m.Stat)
			}
			if m.Tolerance != 0 && !strings.HasSuffix(m.Stat, "correct") {
				errs.Add(key+".tolerance", "%s has none; correct and found-correct have", m.Stat)
			}
			if m.Truth == groundtruth.Paths && (strings.HasSuffix(m.Stat, "error") || m.Stat == "wmre" || m.AtLeast > 0 ||
				len(m.Dimensions) > 0) {
				errs.Add(key+".truth", "flow-paths are texts of 5-tuples, so that stat is correct, found-correct, f1, "+
					"precision or recall, without dimensions and at-least")
			}
			if m.Leaf != "" && scoring.Stats[m.Stat] != nil && !slices.Contains(scoring.Values, m.Stat) {
				errs.Add(key+".leaf", "%s compares which flows are in the list, not a leaf; leave the leaf out", m.Stat)
			}
			if slices.Contains([]string{PartialEpochs, CollectionMS, ResponseMS, Rows, c.Plugin + "-lost"}, m.Name) {
				errs.Add(key+".name", "every scenario has a measure %q; choose another name", m.Name)
			}
			for k, d := range m.Dimensions {
				at := fmt.Sprintf("%s.dimensions[%d]", key, k)
				fields, err := flow.ParseFields(d)
				switch {
				case err != nil:
					errs.Add(at, "%v", err)
				case fields.String() != d:
					errs.Add(at, "write %q for %q: results have their fields in this order", fields, d)
				case slices.Index(m.Dimensions, d) < k:
					errs.Add(at, "%q is there twice", d)
				}
			}
		}
	}
}

// checkBound reports bounds that can never hold, such as a share above 1 or a plugin that does not
// run.
func (s *Scenario) checkBound(errs *settings.KeyErrors, key string, b *Bound) {
	if err := score.CheckBounds(s.algorithms(), PartialEpochs, b.Measure, b.AtLeast, b.AtMost); err != nil {
		errs.Add(key, "%v", err)
	}
	var names []string
	for _, p := range s.plugins() {
		names = append(names, config.Plugin{Plugin: p}.Binary())
	}
	if b.Algorithm != "" && !slices.Contains(names, b.Algorithm) {
		errs.Add(key+".algorithm", "no algorithm is called %q%s", b.Algorithm, otherwise(b.Algorithm, names))
	}
	for _, c := range s.Scoring {
		for _, m := range c.Measures {
			meant := m.Name == b.Measure && (b.Algorithm == "" || b.Algorithm == c.Plugin)
			if d := b.Dimension; meant && d != "" && !slices.Contains(m.Dimensions, d) {
				errs.Add(key+".dimension", "the measure %s has no dimension %q%s", m.Name, d, otherwise(d, m.Dimensions))
			}
		}
	}
}

// isFile reports whether a program is named by the file that p4c wrote.
func isFile(program string) bool { return strings.HasSuffix(program, ".json") }

// infoOf returns the file with the P4Info of a program's file.
func infoOf(file string) string { return strings.TrimSuffix(file, ".json") + ".p4info.txtpb" }

// loadProgram loads a program by its name, or from the files that p4c wrote.
func loadProgram(name string) (*compiled.Program, error) {
	if !isFile(name) {
		return compiled.Load(name)
	}
	p, err := p4rt.ReadProgram(name, infoOf(name))
	if err != nil {
		return nil, err
	}
	return &compiled.Program{Name: name, JSON: p.DeviceConfig, P4Info: p.P4Info}, nil
}

// pipeline returns what the collector's configuration says about a program.
func pipeline(program string) any {
	if isFile(program) {
		return map[string]any{"device-config": program, "p4info": infoOf(program)}
	}
	return program
}

// at returns the path of a file that the scenario names; it is relative to the scenario's file.
func (s *Scenario) at(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.dir, path)
}

// locate completes the paths of the scenario's programs. dir is the directory of its file.
func (s *Scenario) locate(dir string) (err error) {
	if s.dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if isFile(s.Program) {
		s.Program = s.at(s.Program)
	}
	for name, program := range s.Programs {
		if isFile(program) {
			s.Programs[name] = s.at(program)
		}
	}
	return nil
}

// instance returns an instance of a plugin for the collector's configuration.
func (s *Scenario) instance(algorithm settings.Section) any {
	instance, _ := algorithm.Value().(map[string]any)
	if path, ok := instance["plugin"].(string); ok && strings.ContainsRune(path, '/') {
		instance = maps.Clone(instance)
		instance["plugin"] = s.at(path)
		return instance
	}
	return algorithm.Value()
}

// Change sets a key of a scenario to another value.
type Change struct {
	Key   string // path of the key, such as traffic[0].flows
	Value string // the value, written as YAML
}

func (c Change) apply(s settings.Section) (settings.Section, error) {
	r := settings.NewReport(c.Key, []byte(c.Value))
	root := yaml.Parse(r, []byte("value: "+c.Value), func(string) (string, bool) { return "", false })
	if err := r.Err(); err != nil {
		return s, fmt.Errorf("%s=%s: %w", c.Key, c.Value, err)
	}
	s, err := s.With(c.Key, root.Get("value"))
	if err != nil {
		return s, fmt.Errorf("%s=%s: %w", c.Key, c.Value, err)
	}
	return s, nil
}
