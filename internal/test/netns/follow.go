// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/yang"
)

// Follow subscribes to paths of the collector in another goroutine, until the process ends. It
// calls changed with each row below the paths: first with the existing rows, then whenever a row of
// the collector changes. Whenever the summary of a plugin changes, Follow calls changed with all
// rows of the plugin, because the collector sends the plugin's other rows before the summary, and
// only those that changed. Each of these rows has "first-epoch" and "epoch", the newest epoch of
// the summary; rows below the container settled have the settled epoch. Repeated queries could miss
// results, because each epoch replaces the previous epoch's. missed is the number of values that
// the collector did not send because this program was slow: values of the row, or of the summary.
// When values of the summary are missing, the rows may be of the epoch before it, and the epoch's
// own rows may come later and be replaced before the next summary. A container counts as a row of
// the list with its own path. lock is held while changed runs, and while ended is set to the reason
// why the subscription ended.
func Follow(lock sync.Locker, changed func(list string, r Row, missed int64), ended *error, paths ...string) {
	go func() {
		err := Watch(lock, changed, paths...)
		lock.Lock()
		defer lock.Unlock()
		*ended = err
	}()
}

// Watch follows paths as Follow does, but in this goroutine, and returns the reason why the
// subscription ended.
func Watch(lock sync.Locker, changed func(list string, r Row, missed int64), paths ...string) error {
	conn, err := grpc.NewClient(Collector, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	list := &gpb.SubscriptionList{Encoding: gpb.Encoding_JSON_IETF}
	for _, text := range paths {
		path, err := yang.ParsePath(text)
		if err != nil {
			return err
		}
		list.Subscription = append(list.Subscription, &gpb.Subscription{Path: path, Mode: gpb.SubscriptionMode_ON_CHANGE})
	}
	stream, err := gpb.NewGNMIClient(conn).Subscribe(context.Background())
	if err == nil {
		err = stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}})
	}
	rows := rows{}
	for err == nil {
		var response *gpb.SubscribeResponse
		if response, err = stream.Recv(); err == nil {
			lock.Lock()
			err = rows.take(response.GetUpdate(), changed)
			lock.Unlock()
		}
	}
	return fmt.Errorf("subscription to %s: %w", strings.Join(paths, ", "), err)
}

// rows holds the newest rows by their paths.
type rows map[string]*followed

type followed struct {
	list   string
	row    Row
	missed int64
}

// take applies a notification, which contains all changes of its rows.
func (rs rows) take(n *gpb.Notification, changed func(list string, r Row, missed int64)) error {
	for _, d := range n.GetDelete() {
		elems := slices.Concat(n.GetPrefix().GetElem(), d.GetElem())
		row, leaf := split(elems)
		if r := rs[yang.PathString(row)]; leaf != "" && r != nil {
			delete(r.row, leaf)
			continue
		}
		gone := yang.PathString(elems)
		maps.DeleteFunc(rs, func(path string, _ *followed) bool { return strings.HasPrefix(path, gone) })
	}
	changes := map[string]bool{}
	for _, u := range n.GetUpdate() {
		elems, leaf := split(slices.Concat(n.GetPrefix().GetElem(), u.GetPath().GetElem()))
		path := yang.PathString(elems)
		r := rs[path]
		if r == nil {
			r = &followed{list: nameOf(elems), row: Row{}}
			for _, e := range elems {
				for key, v := range e.GetKey() {
					r.row[key] = v
				}
			}
			rs[path] = r
		}
		var v any
		if err := json.Unmarshal(u.GetVal().GetJsonIetfVal(), &v); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		r.row[leaf], r.missed, changes[path] = v, max(r.missed, int64(u.GetDuplicates())), true
	}
	for path := range changes {
		r := rs[path]
		if root, ok := strings.CutSuffix(r.list, "/summary"); ok {
			rs.epoch(root, r.row, changed)
		} else if strings.HasPrefix(r.list, "/collector") {
			changed(r.list, maps.Clone(r.row), r.missed)
			r.missed = 0
		}
	}
	return nil
}

// epoch calls changed with the rows of a plugin. summary is the row of the plugin's summary.
func (rs rows) epoch(root string, summary Row, changed func(list string, r Row, missed int64)) {
	newest := summary["newest-epoch"]
	if newest == nil {
		newest = summary["last-epoch"]
	}
	for _, r := range rs {
		if !strings.HasPrefix(r.list, root+"/") {
			continue
		}
		row := maps.Clone(r.row)
		if row["epoch"] = newest; row["first-epoch"] == nil {
			row["first-epoch"] = summary["first-epoch"]
		}
		if settled := root + "/settled"; strings.HasPrefix(r.list, settled) {
			delete(row, "epoch")
			if s := rs[settled]; s != nil && s.row["last-epoch"] != nil {
				row["epoch"] = s.row["last-epoch"]
			}
		}
		changed(r.list, row, max(r.missed, rs[root+"/summary"].missed))
	}
	for path, r := range rs {
		if strings.HasPrefix(path, root+"/") {
			r.missed = 0
		}
	}
}

// split returns the path of a row and the name of a leaf in it; the name is empty for the path of
// a row.
func split(elems []*gpb.PathElem) (row []*gpb.PathElem, leaf string) {
	at := slices.IndexFunc(elems, func(e *gpb.PathElem) bool { return e.GetName() == "state" || e.GetName() == "config" })
	if at < 0 {
		return elems, ""
	}
	return elems[:at], strings.TrimPrefix(nameOf(elems[at+1:]), "/")
}

// nameOf returns the text of a path without its keys.
func nameOf(elems []*gpb.PathElem) string {
	name := ""
	for _, e := range elems {
		name += "/" + e.GetName()
	}
	return name
}
