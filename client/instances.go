package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/buildyard/buildyard/api"
)

const pathVM = "/api/v1/vm"

// StartRequest describes the instance to start. Only TemplateID is required.
type StartRequest struct {
	TemplateID string         `json:"vmid"`
	Tag        string         `json:"tag,omitempty"`         // "": the latest
	Version    *int           `json:"version,omitempty"`     // instead of Tag
	Name       string         `json:"name,omitempty"`        // of the instance
	ExternalID string         `json:"external_id,omitempty"` // chosen by the client
	Count      int            `json:"count,omitempty"`       // 0: one
	NodeID     string         `json:"node_id,omitempty"`     // node to start on; "": any
	Group      string         `json:"group,omitempty"`       // permission group
	GroupID    string         `json:"group_id,omitempty"`    // node group
	Priority   int            `json:"priority,omitempty"`    // 1 to 10000, lower is more urgent; 0: 1000
	Metadata   map[string]any `json:"metadata,omitempty"`    // of strings, integers and booleans
	TTL        Duration       `json:"ttl,omitzero"`          // after which it ends automatically

	StartupScript     []byte          `json:"startup_script,omitempty"`           // as text, not base64
	ScriptCondition   ScriptCondition `json:"startup_script_condition,omitempty"` // when the startup script runs
	ScriptMonitoring  bool            `json:"script_monitoring,omitempty"`        // report the script's result
	ScriptTimeout     int             `json:"script_timeout,omitempty"`           // seconds; 0: 90
	ScriptFailHandler FailHandler     `json:"script_fail_handler,omitempty"`      // action when the script has failed

	NameTemplate    string     `json:"name_template,omitempty"`           // of the VM
	VCPU            int        `json:"vcpu,omitempty"`                    // number of vCPUs; 0: as the template
	VRAM            int        `json:"vram,omitempty"`                    // MB
	Disk            *Disk      `json:"disk,omitempty"`                    // new size of the first disk
	NetworkMode     string     `json:"network_mode,omitempty"`            // shared, nat, host, bridge or disconnected
	NetworkLocal    string     `json:"network_local,omitempty"`           // forceOn or forceOff
	MACAddress      string     `json:"mac_address,omitempty"`             // of the guest; "": chosen by the cloud
	VLANTag         string     `json:"vlan_tag,omitempty"`                // VLAN ID; "": none
	USBDevice       string     `json:"usb_device,omitempty"`              // a claim name or a location
	Ports           []PortRule `json:"port_forwarding_override,omitzero"` // not nil: replaces the template's rules
	VNCPassword     string     `json:"vnc_password,omitempty"`            // enables the console with this password
	VideoController string     `json:"video_controller,omitempty"`        // fbuf or pg
	HVAPIC          string     `json:"hvapic,omitempty"`                  // of Intel Macs; refused
	CSRActiveConfig string     `json:"csr_active_config,omitempty"`       // of Intel Macs; refused
	HardwareSerial  string     `json:"hw_serial,omitempty"`               // serial number that the guest sees
	HardwareUUID    string     `json:"hw_uuid,omitempty"`                 // UUID that the guest sees

	IdempotencyKey string `json:"-"` // see NewKey
}

// ScriptCondition is the condition for running the startup script.
type ScriptCondition int

// The conditions.
const (
	AfterNetwork ScriptCondition = iota // once the VM's network is up
	AfterBoot                           // as soon as the VM boots
)

// FailHandler is the action on a VM whose monitored script failed.
type FailHandler int

// The fail handlers.
const (
	StopOnFailure FailHandler = iota
	KeepOnFailure
	DeleteOnFailure
)

// PortRule is a port-forwarding rule. The node chooses the host port when none is given.
type PortRule struct {
	Name      string `json:"name"`
	GuestPort int    `json:"guest_port"`
	HostIP    string `json:"host_ip,omitempty"`   // address of the node that is bound; "": all
	HostPort  int    `json:"host_port,omitempty"` // 0: the node chooses one
}

// Disk describes how the first disk grows.
type Disk struct {
	Size       string `json:"size"` // such as 80G
	SkipResize bool   `json:"skip_container_resize,omitempty"`
}

// Start requests instances and returns their IDs.
func (c *Controller) Start(ctx context.Context, r StartRequest) ([]string, error) {
	return fetch[[]string](ctx, c.service, call{method: http.MethodPost, path: pathVM, body: r, key: r.IdempotencyKey})
}

// Instance returns one instance.
func (c *Controller) Instance(ctx context.Context, id string) (api.Instance, error) {
	return one[api.Instance](ctx, c.service, pathVM, id)
}

// ExplainedInstance is an instance and the reason why it is pending or not.
type ExplainedInstance struct {
	api.Instance
	Explain api.Explanation `json:"explain"`
}

// Explain returns one instance and the reason why it is pending.
func (c *Controller) Explain(ctx context.Context, id string) (ExplainedInstance, error) {
	q := byID(id)
	q.Set("explain", "1")
	return fetch[ExplainedInstance](ctx, c.service, get(pathVM, q))
}

// Instances returns a list of instances, in the order of their ids.
func (c *Controller) Instances(ctx context.Context, o ListOptions) ([]api.InstanceItem, error) {
	return fetch[[]api.InstanceItem](ctx, c.service, get(pathVM, o.query()))
}

// EachInstance returns instances page by page. Limit bounds a page; 0 means 1000. It ends after an error.
func (c *Controller) EachInstance(ctx context.Context, o ListOptions) iter.Seq2[api.InstanceItem, error] {
	return pages(o, func(o ListOptions) ([]api.InstanceItem, error) { return c.Instances(ctx, o) },
		func(i api.InstanceItem) string { return i.InstanceID })
}

// pages requests one page after the other until one is not full.
func pages[T any](o ListOptions, ask func(ListOptions) ([]T, error), id func(T) string) iter.Seq2[T, error] {
	if o.Limit <= 0 {
		o.Limit = 1000
	}
	return func(yield func(T, error) bool) {
		for o := o; ; {
			list, err := ask(o)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range list {
				if !yield(item, nil) {
					return
				}
			}
			if len(list) < o.Limit {
				return
			}
			o.After = id(list[len(list)-1])
		}
	}
}

// InstanceUpdate describes changes of an instance; nil leaves a field unchanged.
type InstanceUpdate struct {
	Name       *string        `json:"name,omitempty"`        // nil: unchanged
	ExternalID *string        `json:"external_id,omitempty"` // nil: unchanged
	Metadata   map[string]any `json:"metadata,omitzero"`     // replaces all of it; empty and not nil: none
	TTL        *Duration      `json:"ttl,omitempty"`         // from now on; 0 removes it
}

// UpdateInstance changes the caller-defined fields of an instance.
func (c *Controller) UpdateInstance(ctx context.Context, id string, u InstanceUpdate) error {
	return c.do(ctx, call{method: http.MethodPut, path: pathVM, query: byID(id), body: u, again: true}, nil)
}

// Terminate requests the end of an instance. It is idempotent.
func (c *Controller) Terminate(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathVM, body: map[string]string{"id": id}, again: true}, nil)
}

// RestartRequest names the instance to restart, and the changes to apply.
type RestartRequest struct {
	InstanceID  string `json:"instance_id"`
	USBDevice   string `json:"usb_device,omitempty"`   // claim name or location; "": as before
	VNCPassword string `json:"vnc_password,omitempty"` // "": as before
}

// Restart requests a restart. It is done when the instance is Started and the start date of its VM has changed.
func (c *Controller) Restart(ctx context.Context, r RestartRequest) error {
	return c.do(ctx, call{method: http.MethodPost, path: "/api/v1/rpc/vm/restart", body: r}, nil)
}

const pathHistory = pathVM + "/history"

// History returns terminated instances, the newest first: 100 without a limit.
func (c *Controller) History(ctx context.Context, o ListOptions) ([]api.HistoryInstance, error) {
	return fetch[[]api.HistoryInstance](ctx, c.service, get(pathHistory, o.query()))
}

// HistoryInstance returns one terminated instance.
func (c *Controller) HistoryInstance(ctx context.Context, id string) (api.HistoryInstance, error) {
	return one[api.HistoryInstance](ctx, c.service, pathHistory, id)
}
