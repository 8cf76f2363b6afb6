package controllerrest

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// anyText draws texts, including ones that look like parts of an element.
var anyText = rapid.OneOf(
	rapid.String(),
	rapid.SampledFrom([]string{
		"", `"instance_state":"Scheduling"`, `,"vm":`, `\",\"vm\":{`, "<b>&</b>", "\u2028", "\xff", `","message":"`,
	}),
)

var anyTime = rapid.Custom(func(t *rapid.T) time.Time {
	return time.Unix(rapid.Int64Range(-1<<33, 1<<33).Draw(t, "s"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")).UTC()
})

var anyVM = rapid.Custom(func(t *rapid.T) *farm.VMInfo {
	vm := &farm.VMInfo{
		UUID: anyText.Draw(t, "uuid"), Name: anyText.Draw(t, "name"), Status: farm.VMRunning,
		CPUs: rapid.IntRange(0, 64).Draw(t, "cpus"), MemoryMB: rapid.IntRange(0, 1<<20).Draw(t, "mb"),
		IP: anyText.Draw(t, "ip"), HostIP: anyText.Draw(t, "host"), MAC: anyText.Draw(t, "mac"),
		VNCPort: rapid.IntRange(0, 65535).Draw(t, "vnc"), Started: anyTime.Draw(t, "started"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "ports") {
		vm.Ports = append(vm.Ports,
			farm.Port{Name: anyText.Draw(t, "port"), GuestPort: rapid.IntRange(0, 65535).Draw(t, "guest")})
	}
	return vm
})

// anyInstance draws records, also such as no controller would make.
var anyInstance = rapid.Custom(func(t *rapid.T) *farm.Instance {
	inst := &farm.Instance{
		ID: anyText.Draw(t, "id"), Name: anyText.Draw(t, "name"), ExternalID: anyText.Draw(t, "external"),
		State: rapid.SampledFrom(farm.InstanceStates).Draw(t, "state"), Message: anyText.Draw(t, "message"),
		Template: farm.TemplateRef{ID: anyText.Draw(t, "template"), Tag: anyText.Draw(t,
			"tag"), Version: rapid.IntRange(0, 9).Draw(t, "version"), Arch: "amd64"},
		NodeID: anyText.Draw(t, "node"), Registry: anyText.Draw(t, "registry"),
		PullProgress: rapid.Float64Range(0, 1).Draw(t, "progress"),
		Created:      anyTime.Draw(t, "created"), Updated: anyTime.Draw(t, "updated"),
	}
	if rapid.Bool().Draw(t, "has metadata") {
		inst.Metadata = map[string]any{anyText.Draw(t, "key"): anyText.Draw(t, "value"), "n": rapid.Int64().Draw(t,
			"n"), "b": true, "instance_state": "Scheduling"}
	}
	if rapid.Bool().Draw(t, "has vm") {
		inst.VM = anyVM.Draw(t, "vm")
	}
	if rapid.Bool().Draw(t, "has script") {
		inst.Options.ScriptMonitoring = true
		inst.Script = &farm.ScriptResult{
			ExitCode: rapid.IntRange(-1, 255).Draw(t, "code"), Stdout: []byte(anyText.Draw(t, "stdout")),
		}
	}
	return inst
})

// rowKeeper returns a function that stores a record and returns its row, which keeps the encoded form.
func rowKeeper(t *testing.T) func(*farm.Instance) store.Row[farm.Instance] {
	t.Helper()
	table := store.NewTable("instance", store.WithCachedEncoding(InstanceJSON))
	st, err := store.Open(t.Context(), mem.New(), store.Options{Tables: []store.AnyTable{table}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return func(inst *farm.Instance) store.Row[farm.Instance] {
		if err := st.Commit(t.Context(), store.Put(table, "i", inst, store.Any)); err != nil {
			t.Fatal(err)
		}
		row, _ := table.Snapshot().Row("i")
		return row
	}
}

// TestElementsEqualEncoding compares the answers that are put together from kept
// parts with those that encode every record as a whole.
func TestElementsEqualEncoding(t *testing.T) {
	keep := rowKeeper(t)
	rapid.Check(t, func(t *rapid.T) {
		var list []instances.View
		whole := []api.InstanceItem{}
		for _, record := range rapid.SliceOfN(anyInstance, 0, 5).Draw(t, "instances") {
			inst := instances.View{Instance: record, Message: record.Message}
			if rapid.Bool().Draw(t, "kept") {
				inst = instances.ViewOf(keep(record))
			}
			if rapid.Bool().Draw(t, "explained") {
				inst.Message = anyText.Draw(t, "reason")
			}
			list = append(list, inst)
			shown := inst.Clone() // what the store keeps, which has no invalid UTF-8
			shown.Message = inst.Message
			whole = append(whole, api.InstanceItem{
				InstanceID: shown.ID, ExternalID: orNull(shown.ExternalID), Name: orNull(shown.Name),
				VM: instanceToAPI(shown),
			})
		}
		same(t, elements(list, false), whole)
		size := newElementSize(false)
		for _, inst := range list {
			size.add(inst)
		}
		if want := elements(list, false).Size(); size.total() != want {
			t.Errorf("a size of %d bytes, want %d", size.total(), want)
		}
		for i, inst := range list {
			same(t, vmField(inst, false), whole[i].VM)
		}
	})
}

func same(t *rapid.T, got [][]byte, want any) {
	t.Helper()
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.Join(got, nil), text) {
		t.Fatalf("got  %s\nwant %s", bytes.Join(got, nil), text)
	}
}

// TestPasswordsOfScreens: the connection string has the password only for callers that may open the console,
// and the text stored with the record never has it.
func TestPasswordsOfScreens(t *testing.T) {
	record := &farm.Instance{
		ID: "i", State: farm.Started, Metadata: map[string]any{"vnc_connection_string": "vnc://x"},
		Options: farm.StartOptions{VNCPassword: "p@s/1"}, VM: &farm.VMInfo{HostIP: "10.0.0.1", VNCPort: 5901},
	}
	list := []instances.View{instances.ViewOf(rowKeeper(t)(record))}
	for passwords, want := range map[bool]string{true: "vnc://:p%40s%2F1@10.0.0.1:5901", false: "vnc://10.0.0.1:5901"} {
		var items []api.InstanceItem
		if err := json.Unmarshal(bytes.Join(elements(list, passwords), nil), &items); err != nil {
			t.Fatal(err)
		}
		var one api.Instance
		if err := json.Unmarshal(bytes.Join(vmField(list[0], passwords), nil), &one); err != nil {
			t.Fatal(err)
		}
		if items[0].VM.VMInfo.VNC != want || one.VMInfo.VNC != want {
			t.Errorf("passwords shown: %t: %s, %s, want %s", passwords, items[0].VM.VMInfo.VNC, one.VMInfo.VNC, want)
		}
	}
	if bytes.Contains(InstanceJSON(record), []byte("p%40s")) || bytes.Contains(InstanceJSON(record), []byte("p@s")) {
		t.Error("the kept text has the password")
	}
}
