// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// states are the newest states of plugins that wait to be stored.
type states struct {
	mu   sync.Mutex
	next map[string]kept
	wake chan struct{}

	open   sync.Mutex
	bucket jetstream.ObjectStore // nil while the bucket is not open
}

// kept is a state of a plugin.
type kept struct {
	plugin string // plugin's name in the configuration
	state  *sdk.State
}

// Keep stores the state of a plugin instance, so that its next home continues from it. It does not
// block: a state that is still waiting is replaced.
func (c *Component) Keep(instance, plugin string, s *sdk.State) {
	c.states.mu.Lock()
	c.states.next[instance] = kept{plugin, s}
	c.states.mu.Unlock()
	select {
	case c.states.wake <- struct{}{}:
	default:
	}
}

// storeStates stores states until Stop.
func (c *Component) storeStates() {
	for {
		select {
		case <-c.states.wake:
		case <-c.ctx.Done():
			return
		}
		c.states.mu.Lock()
		all := c.states.next
		c.states.next = map[string]kept{}
		c.states.mu.Unlock()
		for instance, k := range all {
			err := c.storeState(instance, k)
			if err != nil {
				c.n.statesFailed.Add(1)
				c.reopenStates()
			}
			c.note("states of plugins", bus.Unanswered(err))
		}
	}
}

func (c *Component) storeState(instance string, k kept) error {
	ctx, cancel := context.WithTimeout(c.ctx, 4*c.cfg.AckTimeout)
	defer cancel()
	bucket, err := c.objects(ctx)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	if _, err := protodelim.MarshalTo(&buf, k.state.Proto()); err != nil {
		return err
	}
	stored, err := c.stored(ctx, bucket, instance)
	if err != nil {
		return err
	}
	name := objectName(instance, 0)
	if len(stored) > 0 && stored[0].Name == name {
		name = objectName(instance, 1)
	}
	meta := jetstream.ObjectMeta{Name: name, Metadata: map[string]string{"plugin": k.plugin}}
	if _, err := bucket.Put(ctx, meta, &buf); err != nil {
		_ = bucket.Delete(ctx, name) // removes the chunks of a partial object, which is never read
		return fmt.Errorf("plugin %s: %w", instance, err)
	}
	return nil
}

// objectName returns the name of one of the two objects of a plugin instance. They are written in
// turn, because an object that does not fit into the store still replaces the object of the same
// name.
func objectName(instance string, i int) string { return fmt.Sprintf("%s.%d", instance, i) }

// stored returns the objects of a plugin instance, the newest first.
func (c *Component) stored(ctx context.Context, bucket jetstream.ObjectStore, instance string) (
	found []*jetstream.ObjectInfo, err error,
) {
	for i := range 2 {
		info, err := bucket.GetInfo(ctx, objectName(instance, i))
		if errors.Is(err, jetstream.ErrObjectNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, info)
	}
	slices.SortFunc(found, func(a, b *jetstream.ObjectInfo) int { return b.ModTime.Compare(a.ModTime) })
	return found, nil
}

// objects opens the object store of states, and creates the store if it does not exist.
func (c *Component) objects(ctx context.Context) (jetstream.ObjectStore, error) {
	c.states.open.Lock()
	defer c.states.open.Unlock()
	if c.states.bucket != nil {
		return c.states.bucket, nil
	}
	js := c.deps.Bus.JetStream()
	name := c.deps.Bus.Bucket("states")
	bucket, err := js.ObjectStore(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: name, Description: "states of the plugins of netsketch cluster " + c.deps.Bus.Name(),
			MaxBytes: c.cfg.MaxResults, Replicas: c.deps.Bus.Replicas(),
		})
	}
	if err == nil {
		c.states.bucket = bucket
	}
	return bucket, err
}

// reopenStates makes the next call open the object store again, because the store is gone if the
// servers have lost their files.
func (c *Component) reopenStates() {
	c.states.open.Lock()
	defer c.states.open.Unlock()
	c.states.bucket = nil
}

// State returns the newest stored state of a plugin instance. It returns nil if there is none, if
// the state belongs to another plugin, or if it cannot be read; the last two are logged.
func (c *Component) State(ctx context.Context, instance, plugin string) *sdk.State {
	ctx, cancel := context.WithTimeout(ctx, 5*c.cfg.AckTimeout)
	defer cancel()
	s, err := c.state(ctx, instance, plugin)
	if err != nil {
		c.n.statesFailed.Add(1)
		c.reopenStates()
	}
	c.note("the state of plugin "+instance, err)
	return s
}

func (c *Component) state(ctx context.Context, instance, plugin string) (s *sdk.State, err error) {
	bucket, err := c.objects(ctx)
	if err != nil {
		return nil, err
	}
	stored, err := c.stored(ctx, bucket, instance)
	for _, info := range stored {
		if info.Metadata["plugin"] != plugin || info.Size > sdk.MaxState+64 {
			continue
		}
		if err != nil {
			c.log.Warn("cluster: the newest state of a plugin cannot be read, and the one before is used", "plugin", instance,
				"error", err)
		}
		if s, err = c.readState(ctx, bucket, info); err == nil {
			return s, nil
		}
	}
	return nil, err
}

// readState reads one object.
func (c *Component) readState(ctx context.Context, bucket jetstream.ObjectStore, info *jetstream.ObjectInfo) (
	*sdk.State, error,
) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.AckTimeout) // missing chunks never arrive, so the read needs a bound
	defer cancel()
	object, err := bucket.Get(ctx, info.Name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = object.Close() }()
	buf := bytes.NewBuffer(make([]byte, 0, info.Size))
	if _, err := buf.ReadFrom(object); err != nil {
		return nil, err
	}
	var m pluginv1.PluginState
	if err := (protodelim.UnmarshalOptions{MaxSize: sdk.MaxState + 64}).UnmarshalFrom(buf, &m); err != nil {
		return nil, err
	}
	s := sdk.StateFrom(&m)
	return &s, nil
}
