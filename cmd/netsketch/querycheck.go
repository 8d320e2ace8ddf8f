// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/netsketch/netsketch/plugins/omnimon/query"
)

// checkQuery compiles a query of OmniMon's language and prints its plan.
func checkQuery(w io.Writer, file string) error {
	source, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("query: --text: %w", err)
	}
	q, err := query.Parse(file, string(source))
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(w, q.Place())
	return err
}
