// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/scenario/chamelemon"
	"github.com/netsketch/netsketch/lab/scenario/lightguardian"
	"github.com/netsketch/netsketch/lab/scenario/omnimon"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/scenario/sketchint"
	"github.com/netsketch/netsketch/lab/scenario/univmon"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/settings"
)

// Algorithms returns the algorithms that are scored.
func Algorithms() []score.Algorithm {
	return []score.Algorithm{univmon.Algorithm(), chamelemon.Algorithm(), omnimon.Algorithm(), sketchint.Algorithm(),
		lightguardian.Algorithm()}
}

// measures returns the names of all measures: those that every scenario has, and the algorithms'
// own.
func (s *Scenario) measures() []string {
	out := []string{PartialEpochs, CollectionMS, ResponseMS, Rows}
	for _, a := range s.algorithms() {
		out = append(out, a.MeasureNames()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// instance is an element of Algorithms.
type instance struct {
	Plugin string          `json:"plugin"`
	Config json.RawMessage `json:"config"`
}

func instanceOf(algorithm settings.Section) (i instance, err error) {
	data, err := algorithm.JSON()
	if err == nil {
		err = json.Unmarshal(data, &i)
	}
	if err != nil {
		return i, fmt.Errorf("scenario: algorithms: %w", err)
	}
	return i, nil
}

// startScoring makes a scorer for each algorithm of the scenario that is scored.
func (r *Run) startScoring(f *lab.Fabric) error {
	setting := score.Setting{Epoch: r.s.Epoch, Changes: r.s.changes(), Watch: r.s.Watch, Home: func(a netip.Addr) string {
		for _, h := range f.Hosts {
			if slices.ContainsFunc(append(h.Prefixes[:len(h.Prefixes):len(h.Prefixes)], h.V4, h.V6),
				func(p netip.Prefix) bool { return p.Contains(a) }) {
				return f.Switches[h.Switch].Name
			}
		}
		return ""
	}}
	for _, sw := range f.Switches {
		if sw.Role == lab.RoleEdge {
			setting.Edges = append(setting.Edges, sw.Name)
		}
	}
	for _, a := range r.s.Algorithms {
		instance, err := instanceOf(a)
		if err != nil {
			return err
		}
		instance.Plugin = config.Plugin{Plugin: instance.Plugin}.Binary()
		r.plugins = append(r.plugins, instance.Plugin)
		for _, algorithm := range r.s.algorithms() {
			if algorithm.Plugin != instance.Plugin || r.scorers[instance.Plugin] != nil {
				continue
			}
			setting.Config = instance.Config
			scorer, err := score.New(algorithm, setting)
			if err != nil {
				return fmt.Errorf("scenario: algorithms: %w", err)
			}
			if algorithm.Rule != nil && r.rule == nil {
				if r.rule, err = algorithm.Rule(&setting); err != nil {
					return fmt.Errorf("scenario: algorithms: %w", err)
				}
			}
			if algorithm.Header != nil {
				if r.header, err = algorithm.Header(&setting); err != nil {
					return fmt.Errorf("scenario: algorithms: %w", err)
				}
			}
			if algorithm.BankEpochs != nil {
				n, err := algorithm.BankEpochs(&setting)
				if err != nil {
					return fmt.Errorf("scenario: algorithms: %w", err)
				}
				r.shared = max(r.shared, n)
			}
			r.scorers[instance.Plugin] = scorer
			r.scored = append(r.scored, instance.Plugin)
		}
	}
	return nil
}

// score reads the results of an epoch over gNMI and compares them with the ground truth.
func (r *Run) score(ctx context.Context, rep collector.Report, labTime func(time.Time) time.Duration) error {
	e := epochOf(&rep, r.o.Logger)
	e.Results = map[string]*score.Result{}
	index := len(r.report.Epochs)
	if every := r.s.ScoreEvery; index >= r.s.WarmUp && (every <= 1 || index%every == every-1) {
		actual := r.truth(labTime(rep.Start), labTime(rep.End))
		if len(r.s.Agents) > 0 {
			actual.Journal, actual.Stays = r.net.Journal().Take(uint16(rep.Number)), r.net.Stays().Take(rep.Number)
		}
		if r.o.GroundTruth != nil && (r.shared <= 1 || len(actual.Devices) > 0) { // of epochs that share a bank, the last
			if err := r.o.GroundTruth.Write(rep.Number, &actual); err != nil {
				return err
			}
		}
		for _, name := range r.scored {
			scorer := r.scorers[name]
			leaves, err := r.client.Leaves(ctx, scorer.Algorithm().Root)
			if err != nil {
				return err
			}
			e.Results[name], err = scorer.Score(&score.Epoch{Number: rep.Number, Index: index, Status: e.Status,
				Leaves: leaves, Truth: &actual})
			if err != nil {
				return err
			}
			if err := r.watch(ctx, scorer.Watch()); err != nil {
				return err
			}
		}
	}
	r.report.Epochs = append(r.report.Epochs, e)
	if r.o.OnEpoch == nil {
		return nil
	}
	r.fillStats()
	return r.o.OnEpoch(r)
}

// epochOf returns an epoch without results, and logs which plugins lost it.
func epochOf(rep *collector.Report, logger *slog.Logger) EpochScore {
	e := EpochScore{Epoch: rep.Number, End: rep.End, Status: rep.Status.String(), Stages: stagesOf(rep.Stages)}
	for _, d := range slices.Concat(rep.Devices, rep.Hosts) {
		if d.Err != nil {
			if e.Absent == nil {
				e.Absent = map[string]string{}
			}
			e.Absent[d.Name] = strings.ReplaceAll(d.Err.Error(), "\n", "; ")
		}
	}
	for _, p := range rep.Plugins {
		if e.Rows == nil {
			e.Rows = map[string]int{}
		}
		e.Rows[p.Name] = p.Rows
		if p.Err != nil {
			if e.Failed == nil {
				e.Failed = map[string]string{}
			}
			e.Failed[p.Name] = p.Err.Error()
			logger.Warn("a plugin lost an epoch", "plugin", p.Name, "epoch", rep.Number, "error", p.Err)
		}
	}
	return e
}

// watch subscribes to rows until the run is closed. It returns when the collector has synchronized.
func (r *Run) watch(ctx context.Context, rows []*gnmi.Path) error {
	if len(rows) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.watching = append(r.watching, cancel)
	stream, err := r.client.Subscribe(ctx, gnmi.SubscriptionList_STREAM, "", rows...)
	if err != nil {
		return err
	}
	synced := make(chan error, 1)
	go func() { // updates are read with the other results
		for {
			resp, err := stream.Recv()
			if err != nil {
				synced <- fmt.Errorf("scenario: gNMI: %w", err)
				return
			}
			if resp.GetSyncResponse() {
				select {
				case synced <- nil:
				default:
				}
			}
		}
	}()
	return <-synced
}

// truth returns what happened in the epoch from start to end, of the switches whose bank was
// flipped at both ends of it. Switches that died before the epoch counted nothing.
func (r *Run) truth(start, end time.Duration) score.Truth {
	out := score.Truth{Devices: map[string]*score.Device{}, Complete: true, Network: truth.Counts{},
		Lost: truth.Counts{}}
	start -= time.Duration(max(r.shared-1, 0)) * r.s.Epoch
	// Switches get their old routes back within an epoch. Wrong routes are faults beside planned ones.
	out.Rerouted = r.detours.During(start-r.s.Epoch, end) &&
		!slices.ContainsFunc(r.s.Faults, func(x Fault) bool { return x.To != "" })
	edges := true
	for i, sw := range r.net.Fabric().Switches {
		record := r.net.Truth(i)
		seg, sealed := record.SealedIn(end, end+r.s.Epoch)
		if r.net.StoppedBefore(i, start) {
			continue
		}
		if !sealed || seg.Opened < start-r.s.Epoch/2 || seg.Opened >= start+r.s.Epoch/2 {
			out.Complete = out.Complete && !r.net.Banked(i)
			edges = edges && sw.Role != lab.RoleEdge
			continue
		}
		d := &score.Device{All: seg.All, Entered: seg.Entered, Lost: record.Lost(seg), Departed: record.Departed(seg),
			Losses: record.Losses(seg)}
		for k, n := range r.net.OnTheWay(seg) { // the network may drain more slowly than the drain time
			if d.Lost[k] -= n; d.Lost[k] == 0 {
				delete(d.Lost, k)
			}
		}
		out.Devices[sw.Name] = d
		out.Network.Add(d.Entered)
		out.Lost.Add(d.Lost)
	}
	if !edges {
		out.Network, out.Lost, out.Complete = nil, nil, false
	}
	return out
}
