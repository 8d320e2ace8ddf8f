// SPDX-License-Identifier: Apache-2.0

// Texts about the key of a flow.

package web

import (
	"net/http"

	"github.com/netsketch/netsketch/sketch/flow"
)

// flow answers with the form of a flow key in each dimension, or with the fault in the key.
func (a *api) flow(w http.ResponseWriter, r *http.Request) {
	var out struct {
		Forms map[string]string `json:"forms"`
		Error string            `json:"error"`
	}
	var err error
	if out.Forms, err = flow.Forms(r.URL.Query().Get("key")); err != nil {
		out.Error = err.Error()
	}
	answer(w, out)
}
