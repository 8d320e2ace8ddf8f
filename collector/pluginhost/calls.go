// SPDX-License-Identifier: Apache-2.0

// Calls outside of the Run stream: Query and Merge.

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// maxMerged bounds the result of Merge, in bytes.
const maxMerged = 4 << 30

// Query asks the plugin for one row. It returns the tables that hold the row (none if the plugin
// has no value for it), and the epoch of these tables. The tables are not validated. Query may run
// in parallel with Analyze; ctx and Options.CallTimeout bound it.
func (i *Instance) Query(ctx context.Context, row sdk.RowKey) ([]sdk.TableResult, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, i.host.opts.CallTimeout)
	defer cancel()
	s, err := i.current(ctx)
	if err != nil {
		return nil, 0, err
	}
	if !s.description.Capabilities.Query {
		return nil, 0, ErrNoCapability
	}
	answer, err := s.api.Query(ctx, &pluginv1.QueryRequest{Row: row.Proto()})
	if err != nil {
		return nil, 0, queryError(ctx, s, err)
	}
	decoder := sdk.NewTableDecoder(i.host.opts.MaxResultBytes)
	var tables []sdk.TableResult
	for _, part := range answer.GetTables() {
		result, err := decoder.Add(part)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %w", ErrInvalidResults, err)
		}
		if result != nil {
			tables = append(tables, *result)
		}
	}
	return tables, answer.GetEpoch(), nil
}

// queryError explains a call that failed.
func queryError(ctx context.Context, s *session, err error) error {
	reason := status.Convert(err)
	switch {
	case ctx.Err() != nil:
		return timeoutOr(ctx)
	case s.ctx.Err() != nil || reason.Code() == codes.Unavailable:
		return fmt.Errorf("%w: the plugin ended during the query", ErrNotRunning)
	}
	return fmt.Errorf("%w: %s", ErrRefused, clean(reason.Message()))
}

// Merge returns a part of an epoch after the plugin has merged it. ctx bounds the call.
func (i *Instance) Merge(ctx context.Context, part *sdk.Epoch) (*sdk.Epoch, error) {
	merged, err := i.merge(ctx, part)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: merge of epoch %d: %w", i.name, part.Number, err)
	}
	return merged, nil
}

func (i *Instance) merge(ctx context.Context, part *sdk.Epoch) (*sdk.Epoch, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := i.current(ctx)
	if err != nil {
		return nil, err
	}
	if !s.description.Capabilities.Merge {
		return nil, ErrNoCapability
	}
	if err := checkEpoch(part); err != nil {
		return nil, fmt.Errorf("it is malformed: %w", err)
	}
	stream, err := s.api.Merge(ctx)
	if err != nil {
		return nil, err
	}
	// Send returns EOF if the stream broke; Recv then returns the reason.
	if err := part.Send(stream.Send, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	var merged *sdk.Epoch
	decoder := sdk.NewEpochDecoder(maxMerged, func(e *sdk.Epoch, _ time.Duration) error {
		if merged != nil {
			return errors.New("the plugin returned more than one epoch; Merge returns exactly one")
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
	if merged == nil || merged.Number != part.Number {
		return nil, fmt.Errorf("%w: the epoch did not come back", ErrProtocol)
	}
	return merged, nil
}
