// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmi/value"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/program"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang"
)

type queryFlags struct {
	address, target           string
	caFile, certFile, keyFile string
	serverName, username      string
	plaintext, json           bool
	timeout                   time.Duration
	watch                     bool
	text, plugin              string
}

// passwordVariable is the environment variable with the password of --username. A flag would show
// the password in the process list.
const passwordVariable = "NETSKETCH_PASSWORD"

func queryCommand() *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "query PATH",
		Short: "Print current results of a collector, from its gNMI server",
		Long: `Print the rows of a gNMI path, one table per list. A path with all keys of a watchable list, such as a
flow, is computed by its plugin if it is not among the current results.

With --watch, print a line for each value and each change of it until interrupted. A path with all keys
of a watchable list makes that row watched: its plugin computes it in every epoch.

With --text, run a query in the language of a plugin until interrupted, and print its results after
each epoch. The query ends with this command.`,
		Example: `  netsketch query /univmon/heavy-hitters
  netsketch query '/univmon/flows/flow[node=network][dimension=src][flow=10.0.0.1]' --json
  netsketch query --watch '/univmon/flows/flow[node=network][dimension=src][flow=10.0.0.1]'
  netsketch query /collector/plugins --address collector.example.net:9339 --ca-file ca.pem --username ops
  netsketch query --plugin omnimon --text examples/omnimon/queries/slowloris.query`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.text != "" {
				return cobra.NoArgs(cmd, args)
			}
			if len(args) != 1 {
				return fmt.Errorf("query: %d paths are given; expected one gNMI path, such as /univmon/node-summaries, "+
					"/collector/devices or / for all (in quotes if it has brackets)", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.text != "" {
				return f.runQuery(cmd.Context(), cmd.OutOrStdout())
			}
			if f.watch {
				return f.follow(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
			}
			tables, err := f.get(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("query: %w", err)
			}
			if f.json {
				return printJSON(cmd.OutOrStdout(), tables)
			}
			return printTables(cmd.OutOrStdout(), tables)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.address, "address", defaultGNMI,
		"`host:port` of the gNMI server, or unix:///file of a host agent")
	flags.StringVar(&f.target, "target", "", "`name` of the gNMI target; the collector's own when empty")
	flags.BoolVar(&f.json, "json", false, "print JSON instead of tables")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Second, "longest `time` to connect and receive the answer")
	flags.BoolVar(&f.plaintext, "plaintext", false,
		"turn TLS off; the default for a loopback address without TLS flags")
	flags.StringVar(&f.caFile, "ca-file", "", "`file` with the PEM certificates to trust; the system's when empty")
	flags.StringVar(&f.certFile, "cert-file", "", "`file` with the PEM certificate to present, for mutual TLS")
	flags.StringVar(&f.keyFile, "key-file", "", "`file` with the private key of --cert-file")
	flags.StringVar(&f.serverName, "server-name", "",
		"`name` that the server's certificate must carry; the host of --address when empty")
	flags.StringVar(&f.username, "username", "", "`name` to send as metadata, with the password of the "+
		"environment variable "+passwordVariable)
	flags.StringVar(&f.text, "text", "", "`file` with a query in the language of the plugin")
	flags.StringVar(&f.plugin, "plugin", "omnimon", "`name` of the plugin that runs the query of --text")
	flags.BoolVar(&f.watch, "watch", false, "print values and their changes until interrupted")
	cmd.MarkFlagsRequiredTogether("cert-file", "key-file")
	for _, flag := range []string{"json", "text"} {
		cmd.MarkFlagsMutuallyExclusive("watch", flag)
	}
	for _, flag := range []string{"ca-file", "cert-file", "server-name"} {
		cmd.MarkFlagsMutuallyExclusive("plaintext", flag)
	}
	return cmd
}

// get requests the leaves of a path and groups them by list.
func (f *queryFlags) get(ctx context.Context, text string) ([]*resultTable, error) {
	path, err := yang.ParsePath(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yang: "))
	}
	conn, err := f.connect()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	resp, err := gpb.NewGNMIClient(conn).Get(f.login(ctx), &gpb.GetRequest{
		Prefix: &gpb.Path{Target: f.target}, Path: []*gpb.Path{path}, Encoding: gpb.Encoding_PROTO,
	})
	if status.Code(err) == codes.NotFound && slices.ContainsFunc(path.GetElem(), hasKeys) {
		return nil, fmt.Errorf("%w; %s", f.explain(err), f.compareKeys(path))
	}
	if err != nil {
		return nil, f.explain(err)
	}
	return tablesOf(resp.GetNotification())
}

// follow prints the values of a path and their changes, one per line, until ctx ends. If there is
// no value yet, it prints a hint to notes, because a key may be wrong.
func (f *queryFlags) follow(ctx context.Context, out, notes io.Writer, text string) error {
	path, err := yang.ParsePath(text)
	if err != nil {
		return fmt.Errorf("query: %s", strings.TrimPrefix(err.Error(), "yang: "))
	}
	conn, err := f.connect()
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	defer conn.Close()
	stream, err := gpb.NewGNMIClient(conn).Subscribe(f.login(ctx))
	if err == nil {
		list := &gpb.SubscriptionList{Prefix: &gpb.Path{Target: f.target}, Encoding: gpb.Encoding_PROTO,
			Subscription: []*gpb.Subscription{{Path: path, Mode: gpb.SubscriptionMode_ON_CHANGE}}}
		err = stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}})
	}
	for seen := false; err == nil; {
		var response *gpb.SubscribeResponse
		if response, err = stream.Recv(); err != nil {
			break
		}
		seen = seen || len(response.GetUpdate().GetUpdate()) > 0
		if response.GetSyncResponse() && !seen {
			fmt.Fprintf(notes, "query: %s has no value yet; waiting for one. If it never comes, %s\n", text,
				f.compareKeys(path))
			// The get fails with the reason if the plugin finds a fault in the keys of a watched row.
			if _, err := f.get(ctx, text); err != nil && strings.HasPrefix(err.Error(), codes.FailedPrecondition.String()) {
				fmt.Fprintf(notes, "query: %v\n", err)
			}
		}
		err = printUpdates(out, response.GetUpdate())
	}
	if ctx.Err() != nil {
		return nil // the user has ended the command
	}
	return fmt.Errorf("query: %w", f.explain(err))
}

func hasKeys(e *gpb.PathElem) bool { return len(e.GetKey()) > 0 }

// defaultGNMI is the address of a collector's gNMI server on this machine.
const defaultGNMI = "127.0.0.1:9339"

// compareKeys returns advice for a path without values: what is wrong with its flow, or else a
// command that prints the list's rows, whose keys can be compared.
func (f *queryFlags) compareKeys(path *gpb.Path) string {
	for _, e := range path.GetElem() {
		if text := e.GetKey()["flow"]; text != "" && text != "*" {
			if fault := flowFault(text, e.GetKey()["dimension"]); fault != "" {
				return fault
			}
		}
	}
	command := program.Name() + " query"
	if f.address != defaultGNMI {
		command += " --address " + f.address
	}
	return fmt.Sprintf("compare the keys with those of the rows that are there: %s %s", command,
		cmp.Or(names(path.GetElem()), "/"))
}

// flowFault returns what is wrong with the text of a flow of a dimension; empty if the text is
// valid. If the dimension is empty or "*", the text may be a flow of any dimension.
func flowFault(text, dimension string) string {
	forms, err := flow.Forms(text)
	if err != nil {
		return fmt.Sprintf("flow=%s is no flow: %s", text, err)
	}
	written := slices.Sorted(maps.Values(forms))
	form, ok := forms[dimension]
	switch {
	case ok && form != text, !ok && !slices.Contains(written, text):
		return fmt.Sprintf("write flow=%s", cmp.Or(form, written[0]))
	case !ok && dimension != "" && dimension != "*":
		return fmt.Sprintf("flow=%s is a flow of dimension %s, not of %s", text,
			strings.Join(slices.Sorted(maps.Keys(forms)), " or "), dimension)
	}
	return ""
}

// printUpdates prints the leaves of a notification with their time in the local time zone.
func printUpdates(out io.Writer, n *gpb.Notification) error {
	at := time.Unix(0, n.GetTimestamp()).Format("15:04:05.000")
	var lines strings.Builder
	for _, d := range n.GetDelete() {
		fmt.Fprintf(&lines, "%s %s deleted\n", at, yang.PathString(slices.Concat(n.GetPrefix().GetElem(), d.GetElem())))
	}
	for _, u := range n.GetUpdate() {
		v, err := value.ToScalar(u.GetVal())
		if err != nil {
			return err
		}
		elems := slices.Concat(n.GetPrefix().GetElem(), u.GetPath().GetElem())
		fmt.Fprintf(&lines, "%s %s %v\n", at, yang.PathString(elems), v)
	}
	if lines.Len() == 0 { // the end of the initial values
		return nil
	}
	_, err := io.WriteString(out, lines.String())
	return err
}

// connect returns a connection, which is established at the first call.
func (f *queryFlags) connect() (*grpc.ClientConn, error) {
	creds, err := f.credentials()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(f.address, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32))) // a reply contains all rows of a path
	if err != nil {
		return nil, fmt.Errorf("--address %s: %w", f.address, err)
	}
	return conn, nil
}

// login adds username and password to the metadata, if they are set.
func (f *queryFlags) login(ctx context.Context) context.Context {
	if f.username == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "username", f.username, "password", os.Getenv(passwordVariable))
}

// credentials returns TLS, or plaintext if the flags or a loopback address allow it.
func (f *queryFlags) credentials() (credentials.TransportCredentials, error) {
	if strings.HasPrefix(f.address, "unix:///") { // a local socket, protected by the file's permissions
		return insecure.NewCredentials(), nil
	}
	host, _, err := net.SplitHostPort(f.address)
	if err != nil {
		return nil, fmt.Errorf("--address %q: expected host:port, or unix:///file", f.address)
	}
	ip := net.ParseIP(host)
	loopback := host == "localhost" || ip != nil && ip.IsLoopback()
	if f.plaintext || loopback && f.caFile == "" && f.certFile == "" && f.serverName == "" {
		return insecure.NewCredentials(), nil
	}
	settings := config.TLS{CAFile: f.caFile, CertFile: f.certFile, KeyFile: f.keyFile, ServerName: f.serverName}
	c, err := settings.Client(certs.New(certs.Options{}), f.address)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(c), nil
}

// explain adds advice for the user to a connection error.
func (f *queryFlags) explain(err error) error {
	s := status.Convert(err)
	switch {
	case s.Code() == codes.Unavailable && strings.Contains(s.Message(), "connection error"):
		return fmt.Errorf("no gNMI server answers on %s: start the collector or the demo, or set --address "+
			"(TLS: --plaintext or --ca-file): %s", f.address, s.Message())
	case s.Code() == codes.Unauthenticated:
		return fmt.Errorf("%s: %s (--username and %s set them)", s.Code(), s.Message(), passwordVariable)
	}
	return fmt.Errorf("%s: %s", s.Code(), s.Message())
}

// resultTable holds the rows of one list.
type resultTable struct {
	List string       `json:"list"`
	Rows []*resultRow `json:"rows"`

	keys, leaves []string // columns, in the order in which they first have a value
}

// resultRow is one list entry.
type resultRow struct {
	Target string            `json:"target,omitempty"`
	Time   time.Time         `json:"time"`
	Keys   map[string]string `json:"keys"`
	Values map[string]any    `json:"values"`
}

// tablesOf groups the leaves of notifications by list and row.
func tablesOf(notifications []*gpb.Notification) ([]*resultTable, error) {
	var tables []*resultTable
	byList, byRow := map[string]*resultTable{}, map[string]*resultRow{}
	for _, n := range notifications {
		for _, u := range n.GetUpdate() {
			elems := slices.Concat(n.GetPrefix().GetElem(), u.GetPath().GetElem())
			entry := 1 + lastKeyed(elems)
			if entry == 0 { // each container is a row
				entry = len(elems) - 1
				if entry > 0 && (elems[entry-1].GetName() == "state" || elems[entry-1].GetName() == "config") {
					entry--
				}
			}
			list, leaf := names(elems[:entry]), strings.TrimPrefix(strings.TrimPrefix(names(elems[entry:]), "/"),
				"state/")
			t := byList[list]
			if t == nil {
				t = &resultTable{List: list}
				byList[list], tables = t, append(tables, t)
			}
			id := n.GetPrefix().GetTarget() + yang.PathString(elems[:entry])
			row := byRow[id]
			if row == nil {
				row = &resultRow{
					Target: n.GetPrefix().GetTarget(), Time: time.Unix(0, n.GetTimestamp()).UTC(),
					Keys: map[string]string{}, Values: map[string]any{},
				}
				t.addKeys(row, elems[:entry])
				byRow[id], t.Rows = row, append(t.Rows, row)
			}
			if _, repeated := row.Keys[strings.TrimPrefix(leaf, "config/")]; repeated {
				continue
			}
			v, err := value.ToScalar(u.GetVal())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", yang.PathString(elems), err)
			}
			row.Values[leaf] = v
			if !slices.Contains(t.leaves, leaf) {
				t.leaves = append(t.leaves, leaf)
			}
		}
	}
	return tables, nil
}

// addKeys sets the keys of a row. Of the keys of one element the node comes first, and the others
// are in alphabetical order.
func (t *resultTable) addKeys(row *resultRow, elems []*gpb.PathElem) {
	for _, e := range elems {
		for _, name := range slices.SortedFunc(maps.Keys(e.GetKey()), nodeFirst) {
			row.Keys[name] = e.GetKey()[name]
			if !slices.Contains(t.keys, name) {
				t.keys = append(t.keys, name)
			}
		}
	}
}

// nodeFirst compares the names of two keys.
func nodeFirst(a, b string) int {
	switch "node" {
	case a:
		return -1
	case b:
		return 1
	}
	return strings.Compare(a, b)
}

// lastKeyed returns the index of the last element with keys, or -1 if none has keys.
func lastKeyed(elems []*gpb.PathElem) int {
	last := -1
	for i, e := range elems {
		if len(e.GetKey()) > 0 {
			last = i
		}
	}
	return last
}

// names joins the names of elements, without keys.
func names(elems []*gpb.PathElem) string {
	var b strings.Builder
	for _, e := range elems {
		b.WriteString("/" + e.GetName())
	}
	return b.String()
}

// maxColumns is the largest number of columns of a table; rows with more columns are printed with
// one value per line.
const maxColumns = 20

// printTables prints each list as a table with aligned columns.
func printTables(out io.Writer, tables []*resultTable) error {
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if t.List != "" {
			fmt.Fprintln(out, t.List)
		}
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		columns := slices.Concat(t.keys, t.leaves)
		if len(columns) > maxColumns {
			if err := t.printLines(w); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintln(w, strings.ToUpper(strings.Join(columns, "\t")))
		for _, row := range t.Rows {
			cells := make([]string, len(columns))
			for i, c := range columns {
				if k, ok := row.Keys[c]; ok {
					cells[i] = k
				} else if v, ok := row.Values[c]; ok {
					cells[i] = fmt.Sprint(v)
				}
			}
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// printLines prints one row after another, with one value per line.
func (t *resultTable) printLines(w *tabwriter.Writer) error {
	for i, row := range t.Rows {
		if i > 0 {
			fmt.Fprintln(w)
		}
		for _, c := range t.keys {
			fmt.Fprintf(w, "%s\t%s\n", strings.ToUpper(c), row.Keys[c])
		}
		for _, c := range t.leaves {
			if v, ok := row.Values[c]; ok {
				fmt.Fprintf(w, "%s\t%v\n", c, v)
			}
		}
	}
	return w.Flush()
}
