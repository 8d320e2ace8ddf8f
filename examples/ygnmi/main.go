// SPDX-License-Identifier: Apache-2.0

// ygnmi is an example of a typed gNMI client: it prints UnivMon's heavy hitters of one device as
// they change.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/ygnmi/ygnmi"
	"github.com/openconfig/ygot/ytypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/yang/bindings"
)

func main() {
	address := flag.String("address", "127.0.0.1:9339", "gNMI `address` of the collector")
	node := flag.String("node", "leaf1", "`name` of the switch or host, or * for all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	conn, err := grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if err := watch(ctx, conn, *node, os.Stdout); err != nil && ctx.Err() == nil {
		log.Fatalf("heavy hitters of %s at %s: %v", *node, *address, err)
	}
}

// watch prints each heavy hitter when it appears, changes or disappears, until ctx ends.
func watch(ctx context.Context, conn grpc.ClientConnInterface, node string, out io.Writer) error {
	client, err := ygnmi.NewClient(gpb.NewGNMIClient(conn), ygnmi.WithTarget("netsketch"))
	if err != nil {
		return err
	}
	_, err = ygnmi.WatchAll(ctx, client, heavyHitters(node),
		func(v *ygnmi.Value[*bindings.Univmon_HeavyHitter]) error {
			if v.ComplianceErrors != nil {
				return fmt.Errorf("an update does not fit the YANG module: %v", v.ComplianceErrors)
			}
			h, present := v.Val()
			if !present {
				keys := v.Path.GetElem()[2].GetKey()
				fmt.Fprintf(out, "%s %s %s: no longer a heavy hitter\n", keys["node"], keys["dimension"], keys["flow"])
				return ygnmi.Continue
			}
			fmt.Fprintf(out, "%s %s %s:", *h.Node, *h.Dimension, *h.Flow)
			if h.Packets != nil {
				fmt.Fprintf(out, " %d packets", *h.Packets)
			}
			if h.Share != nil {
				fmt.Fprintf(out, ", %.1f %% of all", 100**h.Share)
			}
			fmt.Fprintln(out)
			return ygnmi.Continue
		}).Await()
	if err == nil { // the library sometimes loses the error that ended the stream
		err = cmp.Or(ctx.Err(), errors.New("the subscription ended"))
	}
	return err
}

// heavyHitters is the query for the rows of a node. It names the generated struct and its path,
// so the example needs no generated path structs.
func heavyHitters(node string) ygnmi.WildcardQuery[*bindings.Univmon_HeavyHitter] {
	path := ygnmi.NewNodePath([]string{"univmon", "heavy-hitters", "heavy-hitter"},
		map[string]any{"node": node, "dimension": "*", "flow": "*"}, ygnmi.NewDeviceRootBase())
	schema := func() *ytypes.Schema {
		return &ytypes.Schema{Root: &bindings.Device{}, SchemaTree: bindings.SchemaTree(), Unmarshal: bindings.Unmarshal}
	}
	const state, shadow, leaf, scalar, compressed, container = true, false, false, false, true, false
	return ygnmi.NewWildcardQuery[*bindings.Univmon_HeavyHitter]("Univmon_HeavyHitter",
		state, shadow, leaf, scalar, compressed, container, path, nil, nil, schema, nil, nil)
}
