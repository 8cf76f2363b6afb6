package fault

import (
	"context"
	"encoding/json"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// watch follows the stream of all instances, opening it again whenever it ends, and returns how
// many streams came as far as reporting everything that existed.
func (c *client) watch(ctx context.Context) (synced int) {
	for stream := 1; ctx.Err() == nil; stream++ {
		begin := c.history.now()
		_ = c.Stream(ctx, "/api/v1/vm/watch", func(line []byte) error {
			return c.event(line, call{Op: opWatch, Begin: begin, Stream: stream, Acked: true}, &synced)
		}) // it ends with every kill
		rig.Pause(ctx, 50*time.Millisecond)
	}
	return synced
}

// event writes one line of a stream into the history.
func (c *client) event(line []byte, entry call, synced *int) error {
	var e struct {
		Type       string           `json:"type"`
		Instance   api.InstanceItem `json:"instance"`
		InstanceID string           `json:"instance_id"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return err
	}
	entry.End = c.history.now()
	switch e.Type {
	case "set":
		vm := e.Instance.VM
		entry.Instances, entry.State, entry.Message, entry.Node = []string{e.Instance.InstanceID}, vm.InstanceState,
			vm.Message, vm.NodeID
	case "gone":
		entry.Instances, entry.State = []string{e.InstanceID}, notFound
	case "synced":
		*synced++
		return nil
	default:
		return nil
	}
	c.history.add(entry)
	return nil
}
