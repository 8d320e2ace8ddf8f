// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/collector/cluster/bus/natsserver"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/outputs/all"
)

func collectorCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "collector",
		Short: "Collect from switches, and serve the results over gNMI and into databases",
		Long: `Collect from the switches that the configuration names. The file is read again when it changes and on
SIGHUP; what can change in a running collector does, and the log names what cannot. Certificates are loaded again
when their files change and on SIGHUP. SIGTERM ends it in order.`,
		Example: "  netsketch collector --config configs/netsketch.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runCollector(cmd.Context(), cmd.ErrOrStderr(), path)
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "netsketch.yaml", "configuration `file`")
	return cmd
}

// configLogger returns a logger that writes to w as the configuration says, and its level, which
// can be changed later.
func configLogger(w io.Writer, c config.Log) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(c.Level)
	o := &slog.HandlerOptions{Level: level}
	if c.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, o)), level
	}
	return slog.New(slog.NewTextHandler(w, o)), level
}

func runCollector(ctx context.Context, stderr io.Writer, path string) (err error) {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	logger, level := configLogger(stderr, cfg.Log)
	c, err := collector.New(cfg, collector.Dependencies{
		Logger: logger, Level: level, Programs: scenario.Programs, Version: version,
		ServeNATS: natsserver.Start,
	})
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
		defer cancel()
		err = errors.Join(err, c.Stop(stop))
	}()
	outs, err := all.Open(cfg.Outputs, c, logger)
	if err != nil {
		return err
	}
	if err := outs.Start(); err != nil {
		return err
	}
	c.Health().Outputs.Store(true)
	var work sync.WaitGroup
	outCtx, stopOutputs := context.WithCancel(context.WithoutCancel(ctx))
	work.Go(func() {
		if err := outs.Run(outCtx); err != nil {
			logger.Error("outputs", "error", err)
		}
	})
	work.Go(func() { follow(ctx, c, path, logger) })
	err = c.Run(ctx)
	c.Health().Outputs.Store(false)
	stopOutputs() // after the last epoch, so that its results are delivered
	work.Wait()
	return err
}

// follow reloads the configuration when its file changes and on SIGHUP.
func follow(ctx context.Context, c *collector.Collector, path string, logger *slog.Logger) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	reload := make(chan struct{})
	go func() {
		for {
			select {
			case <-hangup:
				c.Certificates().Reload()
				select {
				case reload <- struct{}{}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	c.Follow(ctx, path, reload)
}
