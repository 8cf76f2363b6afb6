package api

// InstancePage is a sorted part of the instances that match a filter, with the data for a table. Its numbers
// count all that match.
type InstancePage struct {
	Total     int               `json:"total"`     // instances that match the filter
	States    map[string]int    `json:"states"`    // how many are in each state
	Nodes     map[string]string `json:"nodes"`     // names by id, of the part
	Templates map[string]string `json:"templates"` // names by id, of the part
	Instances []InstanceItem    `json:"instances"`
}

// NodePage is a part of the nodes that fit a filter, in an order. Its numbers are of all that fit.
type NodePage struct {
	Total    int            `json:"total"`    // nodes that match the filter
	States   map[string]int `json:"states"`   // number of nodes by state
	Capacity int            `json:"capacity"` // of nodes that accept placements
	VMs      int            `json:"vms"`      // that run on them
	CPUUtil  float64        `json:"cpu_util"` // mean of the active ones, 0..1
	RAMUtil  float64        `json:"ram_util"` // mean of the active ones, 0..1
	Groups   map[string]int `json:"groups"`   // how many are in each group that has some, by its id
	Nodes    []Node         `json:"nodes"`    // the requested part
}

// TemplatePage is a part of the templates that fit a filter, in an order.
type TemplatePage struct {
	Total     int           `json:"total"` // that fit
	Templates []TemplateRow `json:"templates"`
}

// TemplateRow is a row of a table of templates.
type TemplateRow struct {
	Template
	Nodes int `json:"nodes"` // that hold a version of it, of those that the caller sees
}

// TemplateNode is a node that holds versions of a template.
type TemplateNode struct {
	NodeID   string          `json:"node_id"`
	NodeName string          `json:"node_name"`
	State    string          `json:"state"`    // of the node
	Versions []CachedVersion `json:"versions"` // versions that it has cached
}

// CachedVersion is a version that a node holds. Where its content is that of no version of the
// registry, that was reverted or replaced since.
type CachedVersion struct {
	Tag       string `json:"tag"` // of the version when it was pulled
	ContentID string `json:"content_id"`
	Size      int64  `json:"size"` // bytes on the node
}
