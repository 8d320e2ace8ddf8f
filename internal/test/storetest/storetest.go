// SPDX-License-Identifier: Apache-2.0

// Package storetest compares the contents of stores in tests.
package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/internal/store"
)

// Rows returns the rows of a query as sorted text, with the time, the epoch, the keys and all
// leaves except those in without.
func Rows(view *store.View, query store.Query, without ...string) (rows []string) {
	view.Rows(query)(func(row *store.Row, meta store.Meta) bool {
		text := fmt.Sprint(row.List.Path, " ", meta.Epoch, " ", meta.Time.UTC(), " ", row.Entry.Keys)
		for i, l := range row.List.Leaves {
			path := strings.Join(l.Path, "/")
			if v := row.Values[i]; !v.Absent() && !slices.Contains(without, path) {
				text += fmt.Sprint(" ", path, "=", v)
			}
		}
		rows = append(rows, text)
		return true
	})
	slices.Sort(rows)
	return rows
}
