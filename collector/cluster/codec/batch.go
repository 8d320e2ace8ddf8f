// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// EncodeBatch encodes results. A batch that deletes rows cannot be encoded.
func EncodeBatch(b *store.Batch) ([]byte, error) {
	var buf bytes.Buffer
	if _, err := protodelim.MarshalTo(&buf, &clusterv1.Batch{
		Target: b.Target, TimeUnixNs: b.Time.UnixNano(), Epoch: b.Epoch, Tables: uint32(len(b.Tables)),
	}); err != nil {
		return nil, err
	}
	for _, p := range b.Tables {
		if p.Delete {
			return nil, fmt.Errorf("results of epoch %d: table %s deletes rows", b.Epoch, p.Table.List)
		}
		for part := range (sdk.TableResult{Target: b.Target, Table: p.Table, Replace: p.Replace}).Parts(b.Epoch) {
			if _, err := protodelim.MarshalTo(&buf, part); err != nil {
				return nil, err
			}
		}
	}
	return buf.Bytes(), nil
}

// DecodeBatch decodes results with at most limit bytes of tables. The tables have passed
// table.Check and are not compared with the schema.
func DecodeBatch(payload []byte, limit int) (store.Batch, error) {
	r := bytes.NewReader(payload)
	var head clusterv1.Batch
	if err := read(r, &head); err != nil {
		return store.Batch{}, fmt.Errorf("results: %w", err)
	}
	b := store.Batch{Target: head.GetTarget(), Time: time.Unix(0, head.GetTimeUnixNs()).UTC(), Epoch: head.GetEpoch()}
	decoder := sdk.NewTableDecoder(limit)
	for uint32(len(b.Tables)) < head.GetTables() {
		var m pluginv1.TablePart
		var t *sdk.TableResult
		err := read(r, &m)
		if err == nil {
			t, err = decoder.Add(&m)
		}
		if err != nil {
			return b, fmt.Errorf("results of epoch %d: %w", b.Epoch, err)
		}
		if t != nil {
			b.Tables = append(b.Tables, store.Publication{Table: t.Table, Replace: t.Replace})
		}
	}
	if r.Len() > 0 {
		return b, fmt.Errorf("results of epoch %d: %d bytes after the last table", b.Epoch, r.Len())
	}
	return b, nil
}
