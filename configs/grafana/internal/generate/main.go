// SPDX-License-Identifier: Apache-2.0

//go:build dashboards

// Generate writes the dashboards as JSON. go generate runs it in configs/grafana.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/netsketch/netsketch/configs/grafana/internal/dashboards"
)

func main() {
	if err := run("dashboards"); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	files, err := dashboards.Files()
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
