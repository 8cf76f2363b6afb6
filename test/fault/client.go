package fault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// client speaks the controller's API and writes every call into the history.
type client struct {
	rig.Client
	history *history
}

func newClient(base string, h *history) *client {
	return &client{Client: rig.NewClient(base), history: h}
}

// order is what a create asks for.
type order struct {
	Template   string `json:"vmid"`
	Tag        string `json:"tag,omitempty"`
	Node       string `json:"node_id,omitempty"`
	ExternalID string `json:"external_id"`
	Count      int    `json:"count"`
	Script     []byte `json:"startup_script,omitempty"` // base64 on the wire
	Monitoring bool   `json:"script_monitoring,omitempty"`
}

// create asks for instances; without an acknowledgement nothing is known.
func (c *client) create(ctx context.Context, o order) ([]string, error) {
	entry := call{Op: opCreate, Begin: c.history.now(), ExternalID: o.ExternalID}
	var ids []string
	err := c.Send(ctx, http.MethodPost, "/api/v1/vm", o, &ids)
	if err == nil && len(ids) != o.Count {
		err = fmt.Errorf("asked for %d instances, got %d", o.Count, len(ids))
	}
	if err == nil {
		entry.Instances = ids
	}
	c.finish(entry, err)
	return ids, err
}

// finish completes an entry of the history.
func (c *client) finish(entry call, err error) {
	entry.End, entry.Acked = c.history.now(), err == nil
	if err != nil {
		entry.Message = err.Error()
		_, entry.Refused = errors.AsType[rig.Refusal](err)
	}
	c.history.add(entry)
}

// terminate asks once for the end of an instance.
func (c *client) terminate(ctx context.Context, id string) error {
	entry := call{Op: opTerminate, Begin: c.history.now(), Instances: []string{id}}
	err := c.Send(ctx, http.MethodDelete, "/api/v1/vm", map[string]string{"id": id}, nil)
	c.finish(entry, err)
	return err
}

// look reads one instance and returns its state, or notFound.
func (c *client) look(ctx context.Context, id string) (string, error) {
	inst, err := c.inspect(ctx, id)
	return inst.InstanceState, err
}

// inspect asks for one instance; one that is not there has the state notFound.
func (c *client) inspect(ctx context.Context, id string) (inst api.Instance, err error) {
	entry := call{Op: opLook, Begin: c.history.now(), Instances: []string{id}}
	err = c.Send(ctx, http.MethodGet, "/api/v1/vm?id="+url.QueryEscape(id), nil, &inst)
	entry.End = c.history.now()
	if errors.Is(err, rig.Refusal("Not found")) {
		inst.InstanceState, err = notFound, nil
	}
	entry.State, entry.Since, entry.Node = inst.InstanceState, startDate(inst), inst.NodeID
	entry.Acked, entry.Message = err == nil, inst.Message
	if err != nil {
		entry.Message = err.Error()
	}
	c.history.add(entry)
	return inst, err
}

// startDate is when the VM of an instance was started; zero when unknown.
func startDate(inst api.Instance) time.Time {
	if inst.VMInfo == nil {
		return time.Time{}
	}
	return inst.VMInfo.StartDate
}

// list asks for every instance. The history gets an entry for each one that was seen
// and for each expected one that was not.
func (c *client) list(ctx context.Context, expected []string) ([]record, error) {
	begin := c.history.now()
	items, err := c.items(ctx)
	end := c.history.now()
	if err != nil {
		c.finish(call{Op: opList, Begin: begin}, err)
		return nil, err
	}
	records := make([]record, len(items))
	there := make(map[string]bool, len(items))
	seen := func(id, state, message, node string) {
		there[id] = true
		c.history.add(call{
			Op: opList, Begin: begin, End: end, Instances: []string{id}, State: state, Message: message, Node: node,
			Acked: true,
		})
	}
	for i, item := range items {
		records[i] = record{
			ID: item.InstanceID, State: item.VM.InstanceState, Message: item.VM.Message,
			Since: startDate(item.VM),
		}
		if item.ExternalID != nil {
			records[i].ExternalID = *item.ExternalID
		}
		seen(records[i].ID, records[i].State, records[i].Message, item.VM.NodeID)
	}
	for _, id := range expected {
		if !there[id] {
			seen(id, notFound, "", "")
		}
	}
	return records, nil
}

// items asks for every instance, without a word in the history.
func (c *client) items(ctx context.Context) (items []api.InstanceItem, err error) {
	err = c.Send(ctx, http.MethodGet, "/api/v1/vm", nil, &items)
	return items, err
}

// nodeIDs returns the ids of the nodes by their names.
func (c *client) nodeIDs(ctx context.Context) (map[string]string, error) {
	var list []api.Node
	if err := c.Send(ctx, http.MethodGet, "/api/v1/node", nil, &list); err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, n := range list {
		ids[n.NodeName] = n.NodeID
	}
	return ids, nil
}

// nodes returns the states of the nodes by their names.
func (c *client) nodes(ctx context.Context) (map[string]string, error) {
	var list []api.Node
	if err := c.Send(ctx, http.MethodGet, "/api/v1/node", nil, &list); err != nil {
		return nil, err
	}
	states := map[string]string{}
	for _, n := range list {
		states[n.NodeName] = n.State
	}
	return states, nil
}
