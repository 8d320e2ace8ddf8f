// SPDX-License-Identifier: Apache-2.0

package shape_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/shape"
)

func TestRows(t *testing.T) {
	for _, tt := range []struct {
		rows, width, memory int
		wantRows, wantWidth int
	}{
		{0, 7, 0, 3, 7},
		{2, 7, 0, 2, 7},
		{0, 0, 24, 3, 1},
		{0, 0, 71, 3, 2},
		{1, 0, sketch.MaxMemory, 1, sketch.MaxMemory / 8},
	} {
		rows, width, err := shape.Rows[family.P4]("table", tt.rows, tt.width, tt.memory, 8, 0)
		if err != nil || rows != tt.wantRows || width != tt.wantWidth {
			t.Errorf("%+v: %d rows of %d (%v)", tt, rows, width, err)
		}
	}
}

func TestBadRows(t *testing.T) {
	for _, tt := range []struct {
		rows, width, memory int
		seed                uint64
		want                string
	}{
		{0, 0, 0, 0, "3 rows of 0 cells"},
		{0, -1, 0, 0, "width -1"},
		{-1, 1, 0, 0, "rows -1"},
		{0, 0, -4, 0, "memory -4"},
		{0, 0, 23, 0, "3 rows of 0 cells"},
		{0, 5, 100, 0, "only one of"},
		{9, 1, 0, 0, "rows: 9"},
		{0, math.MaxInt, 0, 0, "cells"},
		{0, 0, math.MaxInt, 0, "cells"},
		{0, 1, 0, 2, "seed"},
	} {
		_, _, err := shape.Rows[family.P4]("table", tt.rows, tt.width, tt.memory, 8, tt.seed)
		if !errors.Is(err, sketch.ErrConfig) || !strings.Contains(err.Error(), "table: ") ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
