package nodeinput

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/store"
)

// TestStatusFitsTheStore uses a hostile node that describes itself and a VM. Its fields are
// tested in
func TestStatusFitsTheStore(t *testing.T) {
	long := strings.Repeat("ä", 1<<12)
	vm := &api.NodeVM{UUID: long, Name: long, Version: long, Accel: long}
	for range 1000 {
		vm.Ports = append(vm.Ports, api.NodePortRule{Name: long, Protocol: long, HostIP: long})
	}
	status := api.InstanceStatus{
		Message: long, VM: vm, Script: &api.ScriptStatus{Stdout: strings.Repeat("\x00", 1<<20), Stderr: long},
	}
	report := api.Report{Statuses: []api.InstanceStatus{status}}
	if err := Report(&report); err != nil {
		t.Fatal(err)
	}
	status = report.Statuses[0]
	raw, err := json.Marshal([]any{VMInfo(status.VM, nil), ScriptResult(status.Script), status.Message})
	if err != nil || len(raw) > store.MaxBytes/2 {
		t.Errorf("a status of %d bytes (%v)", len(raw), err)
	}
}
