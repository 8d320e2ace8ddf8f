// SPDX-License-Identifier: Apache-2.0

// Settings, their defaults, and what is wrong with them.

package influxdb

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/netsketch/netsketch/collector/config"
)

// Config is the output's section of the configuration.
type Config struct {
	// URL is where the database listens: http://127.0.0.1:8086.
	URL string `yaml:"url"`
	// Token is InfluxDB 2's token; for 1.8 it is "user:password", or empty.
	Token config.Secret `yaml:"token"`
	// Org is InfluxDB 2's organization; 1.8 has none.
	Org string `yaml:"org"`
	// Bucket is InfluxDB 2's bucket; for 1.8 it is "database" or
	// "database/retention-policy".
	Bucket string `yaml:"bucket"`
	// CAFile holds the certificates that vouch for the database's; the system's when
	// empty.
	CAFile string `yaml:"ca-file"`

	// BatchPoints is how many points one request carries at most.
	BatchPoints int `yaml:"batch-points"`
	// BatchBytes is how large a request becomes at most, before compression.
	BatchBytes config.Size `yaml:"batch-bytes"`
	// FlushInterval is how long a point waits at most for others to fill a request.
	FlushInterval time.Duration `yaml:"flush-interval"`
	// Timeout is how long the answer to a request may take.
	Timeout time.Duration `yaml:"timeout"`
	// Gzip compresses requests.
	Gzip bool `yaml:"gzip"`
	// Unsigned sends unsigned integers as such. InfluxDB 2 takes them, 1.8 only when
	// built for it. A field's type cannot be changed later.
	Unsigned bool `yaml:"unsigned"`

	// MaxSeries bounds how many series (sets of tags) of one measurement are written
	// within SeriesWindow; rows of further series are dropped and counted. The rows
	// of an epoch come largest first.
	MaxSeries int `yaml:"max-series"`
	// SeriesWindow is how long a series counts after its last point.
	SeriesWindow time.Duration `yaml:"series-window"`
	// Exclude names measurements that are not written, such as univmon/flow.
	Exclude []string `yaml:"exclude"`

	// Spool is where points wait while the database is away.
	Spool SpoolConfig `yaml:"spool"`
	// StopTimeout is how long the output tries at the end to deliver what is left; the
	// rest waits in the spool for the next start.
	StopTimeout time.Duration `yaml:"stop-timeout"`
}

// SpoolConfig bounds the disk that is used while the database is away.
type SpoolConfig struct {
	// Dir is a folder of this output alone; when empty, a folder by the output's name
	// under the user's state folder.
	Dir string `yaml:"dir"`
	// MaxBytes bounds its size; the oldest points are dropped and counted beyond.
	MaxBytes config.Size `yaml:"max-bytes"`
	// MaxAge is the age from which points are not worth sending any more; 0: never.
	MaxAge time.Duration `yaml:"max-age"`
}

// DefaultConfig returns the settings that a configuration starts from. URL and Bucket
// have none.
func DefaultConfig() Config {
	return Config{
		BatchPoints:   5000,
		BatchBytes:    1 << 20,
		FlushInterval: time.Second,
		Timeout:       10 * time.Second,
		Gzip:          true,
		MaxSeries:     100_000,
		SeriesWindow:  24 * time.Hour,
		Spool:         SpoolConfig{MaxBytes: 1 << 30, MaxAge: 7 * 24 * time.Hour},
		StopTimeout:   5 * time.Second,
	}
}

// Validate returns everything that is wrong, joined: each a config.KeyError.
func (c *Config) Validate() error {
	var errs config.KeyErrors
	switch u, err := url.Parse(c.URL); {
	case c.URL == "":
		errs.Add("url", "is missing; expected http://host:port or https://host:port")
	case err != nil:
		errs.Add("url", "expected http://host:port or https://host:port")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		errs.Add("url", "expected http://host:port or https://host:port; found %q", u.Redacted())
	case u.User != nil:
		errs.Add("url", "has a user in it; give it as token: \"user:password\"")
	}
	if c.Bucket == "" {
		errs.Add("bucket", `is missing; expected a bucket, or for InfluxDB 1.8 "database/retention-policy"`)
	}
	if c.BatchPoints < 1 || c.BatchPoints > 1_000_000 {
		errs.Add("batch-points", "expected 1 to 1000000; found %d", c.BatchPoints)
	}
	if c.BatchBytes < 1<<10 || c.BatchBytes > 32<<20 {
		errs.Add("batch-bytes", "expected 1KiB to 32MiB; found %s", c.BatchBytes)
	}
	if c.FlushInterval < time.Millisecond || c.FlushInterval > time.Hour {
		errs.Add("flush-interval", "expected 1ms to 1h; found %s", c.FlushInterval)
	}
	if c.Timeout <= 0 {
		errs.Add("timeout", "expected a time above 0; found %s", c.Timeout)
	}
	if c.StopTimeout < 0 {
		errs.Add("stop-timeout", "expected a time, or 0 for none; found %s", c.StopTimeout)
	}
	if c.MaxSeries < 1 {
		errs.Add("max-series", "expected at least 1; found %d", c.MaxSeries)
	}
	if c.SeriesWindow <= 0 {
		errs.Add("series-window", "expected a time above 0; found %s", c.SeriesWindow)
	}
	if c.Spool.MaxBytes < 4*c.BatchBytes {
		errs.Add("spool.max-bytes", "expected at least 4 times batch-bytes; found %s", c.Spool.MaxBytes)
	}
	if c.Spool.MaxAge < 0 {
		errs.Add("spool.max-age", "expected a time, or 0 for no bound; found %s", c.Spool.MaxAge)
	}
	return errs.Err()
}

// Files implements what config.Section resolves relative names of files by.
func (c *Config) Files() []*string { return []*string{&c.CAFile, &c.Spool.Dir} }

// spoolDir returns the spool's folder.
func (c *Config) spoolDir(name string) (string, error) {
	if c.Spool.Dir != "" {
		return c.Spool.Dir, nil
	}
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("there is no home folder to put the spool into; set spool.dir: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	safe := strings.Map(func(r rune) rune {
		if r == '/' || r == filepath.Separator || r < ' ' {
			return '_'
		}
		return r
	}, name)
	return filepath.Join(base, "netsketch", "spool", "influxdb-"+safe), nil
}

// tlsConfig returns the settings for https, or nil for the system's.
func (c *Config) tlsConfig() (*tls.Config, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca-file: %s has no certificate in PEM form", c.CAFile)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
