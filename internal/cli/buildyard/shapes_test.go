package buildyard

import (
	"fmt"
	"slices"
	"sync"
)

// shapes records the type of each field of each kind of record.
type shapes struct {
	mu   sync.Mutex
	seen map[string]string // path of a field -> its type
}

// nullable are the fields that may be null as well.
var nullable = map[string]bool{
	"external_id": true, "name": true, "usb_devices": true, "fallback_group_id": true, "error": true,
	"script_result": true,
}

// open are maps whose keys are ids or a user's own.
var open = map[string]bool{"distribute_status": true, "remove_status": true, "metadata": true}

// differs returns which field has another type than before.
func (s *shapes) differs(path string, value any) string {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if inner == nil {
				if !nullable[key] {
					return path + "." + key + " is null"
				}
				continue
			}
			at := path + "." + key
			if wrong := s.note(at, kindOf(inner)); wrong != "" {
				return wrong
			}
			if open[key] {
				for _, each := range inner.(map[string]any) {
					if wrong := s.differs(at+".*", each); wrong != "" && key != "metadata" {
						return wrong
					}
				}
				continue
			}
			if wrong := s.differs(at, inner); wrong != "" {
				return wrong
			}
		}
	case []any:
		for _, each := range v {
			if wrong := s.note(path+"[]", kindOf(each)); wrong != "" {
				return wrong
			}
			if wrong := s.differs(path+"[]", each); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}

func (s *shapes) note(path, kind string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, known := s.seen[path]; known && was != kind {
		return fmt.Sprintf("%s is a %s and was a %s", path, kind, was)
	}
	s.seen[path] = kind
	return ""
}

func kindOf(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	}
	return "null"
}

func anyElement(map[string]any) string { return "" }

// counts describes the first of the fields that is not an integer of at least 0; "" if there is
// none.
func counts(of map[string]any, fields ...string) string {
	for _, f := range fields {
		if n, ok := of[f].(float64); !ok || n < 0 || n != float64(int64(n)) {
			return fmt.Sprintf("%s is %v", f, of[f])
		}
	}
	return ""
}

// texts describes the first of the fields that is not a string; "" if there is none.
func texts(of map[string]any, fields ...string) string {
	for _, f := range fields {
		if _, ok := of[f].(string); !ok {
			return fmt.Sprintf("%s is %v", f, of[f])
		}
	}
	return ""
}

func share(v any) bool {
	n, ok := v.(float64)
	return ok && n >= 0 && n <= 1
}

var instanceStates = []string{
	"Scheduling", "Pulling", "Started", "Stopping", "Stopped", "Terminating", "Terminated", "Error", "Pushing",
}

// vmElement holds an instance against the contract.
func vmElement(vm map[string]any) string {
	state, _ := vm["instance_state"].(string)
	switch {
	case !slices.Contains(instanceStates, state):
		return fmt.Sprintf("the state is %v", vm["instance_state"])
	case !share(vm["progress"]):
		return fmt.Sprintf("progress is %v", vm["progress"])
	}
	if wrong := texts(vm, "vmid", "group_id", "vlan", "usb_device", "anka_registry", "ts", "cr_time"); wrong != "" {
		return wrong
	}
	info, present := vm["vminfo"]
	if !present {
		return ""
	}
	known, ok := info.(map[string]any)
	if !ok {
		return "vminfo is no object"
	}
	if !slices.Contains([]string{"running", "stopped", "suspended", "deleted"}, fmt.Sprint(known["status"])) {
		return fmt.Sprintf("the status of the VM is %v", known["status"])
	}
	return texts(known, "uuid", "name", "status", "ip", "host_ip", "node_id")
}

// instanceElement holds an element of the list of instances against the contract; ended
// are those that were asked to end before the list was.
func instanceElement(ended map[string]bool) func(map[string]any) string {
	return func(e map[string]any) string {
		vm, ok := e["vm"].(map[string]any)
		if !ok || vm["instance_id"] != e["instance_id"] || e["instance_id"] == "" {
			return "it has no vm, or another id there"
		}
		for _, f := range []string{"external_id", "name"} {
			top, inner := e[f], vm[f]
			if _, there := e[f]; !there || top != inner {
				return f + " is missing, or another one in vm"
			}
		}
		if ended[fmt.Sprint(e["instance_id"])] && vm["instance_state"] != "Terminating" &&
			vm["instance_state"] != "Terminated" {
			return fmt.Sprintf("it is %v after it was asked to end", vm["instance_state"])
		}
		return vmElement(vm)
	}
}

func nodeElement(n map[string]any) string {
	if n["host_arch"] != "amd64" && n["host_arch"] != "arm64" {
		return fmt.Sprintf("host_arch is %v", n["host_arch"])
	}
	if _, ok := n["templates"].([]any); !ok || n["state"] == "" {
		return "templates is no array, or state is empty"
	}
	if wrong := texts(n, "node_id", "node_name", "state", "ip_address", "capacity_mode", "last_updated"); wrong != "" {
		return wrong
	}
	return counts(n, "cpu_count", "ram", "vm_count", "vcpu_count", "vram", "capacity", "disk_size", "free_disk_space",
		"anka_disk_usage")
}

func templateElement(e map[string]any) string {
	if !slices.Contains([]any{"", "amd64", "arm64"}, e["arch"]) {
		return fmt.Sprintf("arch is %v", e["arch"])
	}
	if wrong := texts(e, "id", "name"); wrong != "" {
		return wrong
	}
	return counts(e, "size", "last_pull", "last_push")
}

func detailElement(e map[string]any) string {
	versions, ok := e["versions"].([]any)
	if !ok {
		return "versions is no array"
	}
	for i, v := range versions {
		version := v.(map[string]any)
		if version["number"] != float64(i) {
			return fmt.Sprintf("version %d has the number %v", i, version["number"])
		}
		if wrong := counts(version, "size", "last_pull", "last_push", "creation_date"); wrong != "" {
			return wrong
		}
	}
	return templateElement(e)
}

func distributionElement(e map[string]any) string {
	request, ok := e["request"].(map[string]any)
	nodes, fine := e["distribute_status"].(map[string]any)
	if !ok || !fine || len(nodes) != 6 {
		return "request or a node is missing"
	}
	for _, v := range nodes {
		s := v.(map[string]any)
		done, isBool := s["status"].(bool)
		_, failed := s["error"]
		if !isBool || !share(s["progress"]) || done && (failed || s["progress"] != 1.0) {
			return fmt.Sprintf("the status is %v", s)
		}
	}
	return texts(request, "request_id", "template_id", "time_requested")
}
