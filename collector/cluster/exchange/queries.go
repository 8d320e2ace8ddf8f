// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/codec"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// ErrNoHome says that a query has no answer because the collector that analyzes the plugin cannot
// be reached.
var ErrNoHome = errors.New("the collector that analyzes the plugin does not answer")

// QueryError is the error of a query at another collector.
type QueryError struct{ Code, Text string }

// Error implements error.
func (e *QueryError) Error() string { return e.Text }

// The headers of queries and replies.
const (
	headerPlugin = "Plugin"
	headerCode   = "Code"
	headerError  = "Error"
)

const (
	// queryLimit bounds the time of an answer if the query has no deadline.
	queryLimit = 2 * time.Second
	// queriesAtOnce bounds the queries of other collectors that are answered at the same time.
	queriesAtOnce = 16
)

// Query requests a row from the home of a plugin. The error wraps ErrNoHome, or a QueryError with
// the code that Dependencies.Answer returned there.
func (c *Component) Query(ctx context.Context, plugin string, row sdk.RowKey) ([]sdk.TableResult, uint64, error) {
	home := c.deps.View().In(c.inbox.measured()).Plugin(plugin)
	data, err := proto.Marshal(&pluginv1.QueryRequest{Row: row.Proto()})
	if err != nil {
		return nil, 0, err
	}
	reply, err := c.deps.Bus.Conn().RequestMsgWithContext(ctx, &nats.Msg{Subject: c.deps.Bus.Subject("query", home),
		Header: nats.Header{headerPlugin: []string{plugin}}, Data: data})
	if err != nil {
		return nil, 0, fmt.Errorf("%w: collector %q: %w", ErrNoHome, home, err)
	}
	if code := reply.Header.Get(headerCode); code != "" {
		return nil, 0, fmt.Errorf("collector %s: %w", home, &QueryError{code, reply.Header.Get(headerError)})
	}
	var answer pluginv1.QueryResponse
	if err := proto.Unmarshal(reply.Data, &answer); err != nil {
		return nil, 0, fmt.Errorf("collector %s: %w", home, err)
	}
	decoder := sdk.NewTableDecoder(codec.ChunkBytes)
	var tables []sdk.TableResult
	for _, part := range answer.GetTables() {
		t, err := decoder.Add(part)
		if err != nil {
			return nil, 0, fmt.Errorf("collector %s: %w", home, err)
		}
		if t != nil {
			tables = append(tables, *t)
		}
	}
	return tables, answer.GetEpoch(), nil
}

// answerQueries answers the queries of other collectors until Stop.
func (c *Component) answerQueries(sub *nats.Subscription) {
	defer func() { _ = sub.Unsubscribe() }() // the connection may be closed
	places := make(chan struct{}, queriesAtOnce)
	for {
		m, err := sub.NextMsgWithContext(c.ctx)
		switch {
		case c.ctx.Err() != nil:
			return
		case err != nil:
			c.note("queries", err)
			if !c.pause() {
				return
			}
			continue
		}
		select {
		case places <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
		c.work.Go(func() {
			defer func() { <-places }()
			c.note("answers to queries", m.RespondMsg(c.answer(m)))
		})
	}
}

// answer returns the reply to a query.
func (c *Component) answer(m *nats.Msg) *nats.Msg {
	ctx, cancel := context.WithTimeout(c.ctx, queryLimit)
	defer cancel()
	refuse := func(code string, err error) *nats.Msg {
		return &nats.Msg{Header: nats.Header{headerCode: []string{code}, headerError: []string{oneLine(err.Error())}}}
	}
	var request pluginv1.QueryRequest
	if err := proto.Unmarshal(m.Data, &request); err != nil {
		return refuse("refused", err)
	}
	tables, number, code, err := c.deps.Answer(ctx, m.Header.Get(headerPlugin), sdk.RowKeyFrom(request.GetRow()))
	if err != nil {
		return refuse(code, err)
	}
	out := &pluginv1.QueryResponse{Epoch: number}
	for _, t := range tables {
		for part := range t.Parts(number) {
			out.Tables = append(out.Tables, part)
		}
	}
	data, err := proto.Marshal(out)
	if err == nil && len(data) > codec.ChunkBytes {
		err = fmt.Errorf("the answer has %d bytes; at most %d are sent", len(data), codec.ChunkBytes)
	}
	if err != nil {
		return refuse("refused", err)
	}
	return &nats.Msg{Data: data}
}
