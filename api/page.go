package api

import "encoding/json"

// InstancePage is a part of the instances that fit a filter, in an order, with what a table of
// them needs. Its numbers are of all that fit.
type InstancePage struct {
	Total     int               `json:"total"`
	States    map[string]int    `json:"states"`    // how many are in each state
	Nodes     map[string]string `json:"nodes"`     // names by id, of the part
	Templates map[string]string `json:"templates"` // names by id, of the part
	Instances []InstanceItem    `json:"instances"`
}

// EncodedInstancePage is an InstancePage whose instances are JSON text already.
type EncodedInstancePage struct {
	InstancePage
	Instances []json.RawMessage `json:"instances"`
}

// NodePage is a part of the nodes that fit a filter, in an order. Its numbers are of all that fit.
type NodePage struct {
	Total    int            `json:"total"`
	States   map[string]int `json:"states"`
	Capacity int            `json:"capacity"` // of those that take starts
	VMs      int            `json:"vms"`      // that run on them
	CPUUtil  float64        `json:"cpu_util"` // mean of the active ones, 0..1
	RAMUtil  float64        `json:"ram_util"`
	Nodes    []Node         `json:"nodes"`
}
