package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/buildyard/buildyard/api"
)

const pathNode = "/api/v1/node"

// Nodes returns a list of nodes.
func (c *Controller) Nodes(ctx context.Context, o ListOptions) ([]api.Node, error) {
	return fetch[[]api.Node](ctx, c.service, get(pathNode, o.query()))
}

// Node returns one node.
func (c *Controller) Node(ctx context.Context, id string) (api.Node, error) {
	list, err := one[[]api.Node](ctx, c.service, pathNode, id)
	switch {
	case err != nil:
		return api.Node{}, err
	case len(list) == 0:
		return api.Node{}, &Error{Code: ErrNotFound, Message: notFound, Method: http.MethodGet, Path: pathNode}
	}
	return list[0], nil
}

// NodeConfig describes an operator's settings of a node; nil and "" leave a field unchanged.
type NodeConfig struct {
	NodeID       string    `json:"node_id"`
	Name         string    `json:"name,omitempty"`
	Host         string    `json:"host,omitempty"`                    // "auto": as the node reports
	MaxVMCount   int       `json:"max_vm_count,omitempty"`            // VMs that the node may run; 0: unchanged
	CapacityMode string    `json:"capacity_mode,omitempty"`           // number or resource
	VCPUOverride *int      `json:"vcpu_override,omitempty"`           // 0: none
	RAMOverride  *int      `json:"ram_override,omitempty"`            // MB; 0: none
	NoCentralLog *bool     `json:"disable_central_logging,omitempty"` // keep the node's logs off the central logs
	Drain        *bool     `json:"drain_mode,omitempty"`              // begin or end a drain; nil: unchanged
	DrainReason  string    `json:"drain_reason,omitempty"`
	DrainLimit   *Duration `json:"drain_deadline,omitempty"` // when running instances are terminated; 0: never
}

// ConfigureNode changes an operator's settings of a node.
func (c *Controller) ConfigureNode(ctx context.Context, n NodeConfig) error {
	return c.do(ctx, call{method: http.MethodPost, path: pathNode + "/config", body: n, again: true}, nil)
}

// DeleteNode removes a node that no longer exists.
func (c *Controller) DeleteNode(ctx context.Context, id string) error {
	return c.do(ctx,
		call{method: http.MethodDelete, path: pathNode, body: map[string]string{"node_id": id}, again: true}, nil)
}

// UpdateNodes lets nodes install the agent package that the controller has for them: those with these IDs, or
// all. Their VMs keep running; see WaitUpdated.
func (c *Controller) UpdateNodes(ctx context.Context, ids ...string) error {
	var body any
	if len(ids) > 0 {
		body = map[string][]string{"node_ids": ids}
	}
	return c.do(ctx, call{method: http.MethodPut, path: pathNode + "/update", body: body, again: true}, nil)
}

// NodeScans returns summaries of the last host scans of nodes.
func (c *Controller) NodeScans(ctx context.Context, o ListOptions) ([]api.NodeScanSummary, error) {
	return fetch[[]api.NodeScanSummary](ctx, c.service, get(pathNode+"/scans", o.query()))
}

// NodeScan returns the last host scan of a node; ErrNotFound if it has reported none.
func (c *Controller) NodeScan(ctx context.Context, id string) (api.NodeScan, error) {
	return one[api.NodeScan](ctx, c.withTimeout(scanTimeout), pathNode+"/scan", id)
}

// NodeExposure returns the instances that ran on a node while vulnerabilities with some IDs were known of it, or
// without IDs any; ErrNotFound if it has reported no host scan.
func (c *Controller) NodeExposure(ctx context.Context, id string, ids ...string) (api.NodeExposure, error) {
	q := byID(id)
	set(q, "vulnerability", strings.Join(ids, ","))
	return fetch[api.NodeExposure](ctx, c.withTimeout(scanTimeout), get(api.PathNodeScanInstances, q))
}

// PutNodeScan stores scan results of a node, in place of older results. It returns ErrConflict if there are
// newer ones.
func (c *Controller) PutNodeScan(ctx context.Context, id string, scan api.NodeScan) error {
	put := call{method: http.MethodPut, path: pathNode + "/scan", query: byID(id), body: scan, again: true}
	return c.withTimeout(scanTimeout).do(ctx, put, nil)
}

const pathAdopt = pathNode + "/adopt"

// OrphanedVMs returns the orphaned VMs, of a node by ID or name or, with "", of all.
func (c *Controller) OrphanedVMs(ctx context.Context, node string) ([]api.OrphanedVM, error) {
	q := url.Values{}
	set(q, "node", node)
	return fetch[[]api.OrphanedVM](ctx, c.service, get(pathAdopt, q))
}

// ResolveOrphanedVMs adopts or removes orphaned VMs, and returns the outcome of each.
func (c *Controller) ResolveOrphanedVMs(ctx context.Context, d api.OrphanDecision) ([]api.OrphanOutcome, error) {
	return fetch[[]api.OrphanOutcome](ctx, c.service,
		call{method: http.MethodPost, path: pathAdopt, body: d, again: true})
}

// USB returns how many USB devices are free and in use on all nodes, by the names under which they can be
// requested.
func (c *Controller) USB(ctx context.Context) (map[string]api.USBCount, error) {
	return fetch[map[string]api.USBCount](ctx, c.service, get("/api/v1/usb", nil))
}

// VLANs returns the IDs that every node offers.
func (c *Controller) VLANs(ctx context.Context) ([]string, error) {
	return fetch[[]string](ctx, c.service, get("/api/v1/vlan", nil))
}
