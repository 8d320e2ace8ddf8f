// SPDX-License-Identifier: Apache-2.0

// Calls beside the epochs: Query and Merge.

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// ErrNoCapability: the plugin does not offer what it was asked for.
var ErrNoCapability = errors.New("plugin does not offer this")

// maxMerged bounds what Merge returns, in bytes.
const maxMerged = 4 << 30

// Query asks for one row. It returns the tables that hold it, none when the
// plugin cannot tell, and the epoch they rest on. ctx is bounded by
// Options.CallTimeout.
func (i *Instance) Query(ctx context.Context, row sdk.Watch) ([]sdk.TableResult, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, i.host.opts.CallTimeout)
	defer cancel()
	s, err := i.current(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("plugin %s: query %s: %w", i.name, row.List, err)
	}
	if !s.description.Capabilities.Query {
		return nil, 0, fmt.Errorf("plugin %s: query %s: %w", i.name, row.List, ErrNoCapability)
	}
	answer, err := s.api.Query(ctx, &pluginv1.QueryRequest{Row: row.Proto()})
	if err != nil {
		return nil, 0, fmt.Errorf("plugin %s: query %s: %s", i.name, row.List, status.Convert(err).Message())
	}
	decoder := sdk.NewTableDecoder(i.host.opts.MaxResultBytes)
	var results sdk.Results
	for _, part := range answer.GetTables() {
		result, err := decoder.Add(part)
		if err != nil {
			return nil, 0, fmt.Errorf("plugin %s: query %s: %w: %w", i.name, row.List, ErrInvalidResults, err)
		}
		if result != nil {
			results.Tables = append(results.Tables, *result)
		}
	}
	if err := s.check(&results); err != nil {
		return nil, 0, fmt.Errorf("plugin %s: query %s: %w", i.name, row.List, err)
	}
	return results.Tables, answer.GetEpoch(), nil
}

// Merge reduces the epochs that several collectors gathered from disjoint parts of
// the network to one. ctx bounds it.
func (i *Instance) Merge(ctx context.Context, parts []*sdk.Epoch) (*sdk.Epoch, error) {
	merged, err := i.merge(ctx, parts)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: merge %d epochs: %w", i.name, len(parts), err)
	}
	return merged, nil
}

func (i *Instance) merge(ctx context.Context, parts []*sdk.Epoch) (*sdk.Epoch, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := i.current(ctx)
	if err != nil {
		return nil, err
	}
	if !s.description.Capabilities.Merge {
		return nil, ErrNoCapability
	}
	for _, part := range parts {
		if err := checkEpoch(part); err != nil {
			return nil, fmt.Errorf("epoch %d is unsound: %w", part.Number, err)
		}
	}
	stream, err := s.api.Merge(ctx)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		if err := part.Send(sdk.MergeSink{Send: stream.Send}, 0); err != nil && !errors.Is(err, io.EOF) { // EOF: Recv tells why
			return nil, err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	var merged *sdk.Epoch
	decoder := sdk.NewEpochDecoder(maxMerged, func(e *sdk.Epoch, _ time.Duration) error {
		if merged != nil {
			return errors.New("more than one epoch")
		}
		merged = e
		return nil
	})
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.New(status.Convert(err).Message())
		}
		if err := decoder.Take(m); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
		}
	}
	if merged == nil {
		return nil, fmt.Errorf("%w: no epoch came back", ErrProtocol)
	}
	return merged, nil
}
