// SPDX-License-Identifier: Apache-2.0

// The settings of the output.

package influxdb

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/settings"
)

// Config is the output's section of the configuration. Package config describes the tags.
type Config struct {
	// URL is where the database listens: http://127.0.0.1:8086.
	URL string `yaml:"url" required:"http://host:port or https://host:port"`
	// Token is InfluxDB 2's token; for 1.8 it is "user:password", or empty.
	Token settings.Secret `yaml:"token" form:"line"`
	// Org is InfluxDB 2's organization; 1.8 has none.
	Org string `yaml:"org" form:"line"`
	// Bucket is InfluxDB 2's bucket; for 1.8 it is "database" or "database/retention-policy".
	Bucket string `yaml:"bucket" form:"line" required:"a bucket, or for InfluxDB 1.8 \"database/retention-policy\""`
	// CAFile holds the certificates to trust; the system's if empty.
	CAFile string `yaml:"ca-file" form:"file"`

	// BatchPoints is the maximum number of points in one request.
	BatchPoints int `yaml:"batch-points" default:"5000" range:"1..1000000"`
	// BatchBytes is the maximum size of a request before compression.
	BatchBytes settings.Size `yaml:"batch-bytes" default:"1MiB" range:"1KiB..32MiB"`
	// FlushInterval is the longest time that a point waits for others to fill a request.
	FlushInterval time.Duration `yaml:"flush-interval" default:"1s" range:"1ms..1h"`
	// Timeout bounds the time until a request is answered.
	Timeout time.Duration `yaml:"timeout" default:"10s" range:"1ms.."`
	// Gzip compresses requests.
	Gzip bool `yaml:"gzip" default:"true"`
	// Unsigned sends unsigned integers as unsigned fields. InfluxDB 2 accepts them, 1.8 only with
	// a build tag. The type of a field cannot be changed later.
	Unsigned bool `yaml:"unsigned" default:"false"`

	// MaxSeries bounds the series (sets of tags) of one measurement that are written within
	// series-window, and the rows of one list that exist; further rows are dropped and counted. The
	// rows of an epoch arrive largest first.
	MaxSeries int `yaml:"max-series" default:"100000" range:"1.."`
	// SeriesWindow is the time for which a series counts after its last point.
	SeriesWindow time.Duration `yaml:"series-window" default:"24h" range:"1ms.."`
	// Exclude lists measurements that are not written, such as univmon/flow.
	Exclude []string `yaml:"exclude"`

	// Spool is the queue on disk while the database is unreachable.
	Spool SpoolConfig `yaml:"spool"`
	// StopTimeout bounds the delivery of queued points at the end; the rest remains in the spool
	// for the next start.
	StopTimeout time.Duration `yaml:"stop-timeout" default:"5s" range:"0s.."`
}

// SpoolConfig bounds the disk space used while the database is unreachable.
type SpoolConfig struct {
	// Dir is a directory for this output only. If empty, the spool is in a directory with the
	// output's name under the user's state directory.
	Dir string `yaml:"dir" form:"file"`
	// MaxBytes bounds its size; beyond it the oldest points are dropped and counted.
	MaxBytes settings.Size `yaml:"max-bytes" default:"1GiB"`
	// MaxAge is the age from which points are dropped instead of sent; 0 means never.
	MaxAge time.Duration `yaml:"max-age" default:"168h" range:"0s.."`
}

// endpoint matches a path of InfluxDB's API for writing, which this output adds to the URL itself.
var endpoint = regexp.MustCompile(`/(api/v[0-9](/write)?|write)/?$`)

// Validate returns the errors that tags cannot express, joined: each a settings.KeyError.
func (c *Config) Validate() error {
	var errs settings.KeyErrors
	switch u, err := url.Parse(c.URL); {
	case err != nil:
		errs.Add("url", "expected http://host:port or https://host:port")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		// the message omits the URL, which may have a password
		errs.Add("url", "expected http://host:port or https://host:port")
	case u.RawQuery != "" || u.Fragment != "":
		errs.Add("url", "contains ? or #; expected http://host:port or https://host:port; give token, org and bucket as "+
			"keys of their own")
	case u.User != nil:
		errs.Add("url", "contains a user; give it as token: \"user:password\"")
	case endpoint.MatchString(u.Path):
		errs.Add("url", "ends in %s, which is added to it; leave it out", endpoint.FindString(u.Path))
	}
	if c.Spool.MaxBytes < 4*c.BatchBytes {
		errs.Add("spool.max-bytes", "expected at least 4 times batch-bytes; found %s", c.Spool.MaxBytes)
	}
	return errs.Err()
}

// spoolDir returns the directory of the spool.
func (c *Config) spoolDir(name string) (string, error) {
	if c.Spool.Dir != "" {
		return c.Spool.Dir, nil
	}
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("there is no home directory for the spool; set spool.dir: %w", err)
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

// tlsConfig returns the TLS settings of a client of the database.
func (c *Config) tlsConfig(name string, store *certs.Store) (*tls.Config, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, err
	}
	files := certs.Files{CA: c.CAFile}
	t, err := store.Client(files, u.Hostname())
	if err == nil {
		store.Declare("output "+name, certs.Use{Name: "client of output " + name, Files: files})
	}
	return t, err
}
