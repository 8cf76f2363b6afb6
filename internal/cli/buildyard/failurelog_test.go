//go:build linux

package buildyard

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
)

// says runs a command of the program and returns its output.
func says(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := Main(t.Context(), args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != 0 {
		t.Fatalf("%v ends with %d: %s", args, code, errs.String())
	}
	return out.String()
}

// TestTheLogOfAFailedVM: the reason why a real QEMU would not start is stored in the registry and
// shown by a command, also when the instance no longer exists.
func TestTheLogOfAFailedVM(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("QEMU is not installed")
	}
	y := newYard(t)
	t.Setenv("SVC_CONTROLLER", y.service.URL())
	realNode(t, y.service)
	template := y.push("", "v1", y.disk(1, 1)).ID

	busy, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	var ids []string
	err = y.api.send(t.Context(), "POST", "/api/v1/vm", map[string]any{
		"vmid": template, "port_forwarding_override": []any{
			map[string]any{"name": "ssh", "guest_port": 22, "host_port": busy.Addr().(*net.TCPAddr).Port},
		},
	}, &ids)
	if err != nil {
		t.Fatal(err)
	}
	id := ids[0]
	y.await("the start to fail", func() bool { return y.instance(id).InstanceState == "Error" })
	list := ""
	y.await("its log", func() bool {
		list = says(t, "log", "vm", id, "-o", "name")
		return list != ""
	})
	name := strings.TrimSpace(list)
	if !regexp.MustCompile(`^\d{8}T\d{6}\.\d{3}Z-start\.log$`).MatchString(name) {
		t.Fatalf("there is %q", list)
	}
	look := func(when string) {
		text := says(t, "log", "vm", id, name)
		for _, want := range []string{"Instance " + id + " on node ", "Template debian (" + template +
			"), tag v1, version 0", "start failed: ", "--- what QEMU printed ---", "host forwarding"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: it lacks %q:\n%s", when, want, text)
			}
		}
	}
	look("while the instance is there")
	says(t, "instance", "terminate", id, "--yes")
	y.await("the end", func() bool {
		var list []json.RawMessage
		y.get("/api/v1/vm", &list)
		return len(list) == 0
	})
	look("when it is gone")
}

// realNode runs a node whose VMs are real until the test ends.
func realNode(t *testing.T, s *ControllerService) {
	t.Helper()
	short, err := os.MkdirTemp("", "by") // sockets of QEMU have short names
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(short, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	runNode(t, s, short, buildnode.NodeOptions{Driver: buildnode.DriverQEMU})
	t.Cleanup(func() { endAll(t, s.URL()) }) // a VM outlives its agent
}

// stopAll ends every instance of a cloud, and waits until their VMs are gone.
func endAll(t *testing.T, controller string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.NewController(controller, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		list, err := c.Instances(ctx, client.ListOptions{Filter: "-state:terminated"})
		if err != nil {
			t.Fatalf("VMs may be left: %v", err)
		}
		if len(list) == 0 {
			return
		}
		for _, i := range list {
			_ = c.Terminate(ctx, i.InstanceID) // most go already
		}
		time.Sleep(100 * time.Millisecond)
	}
}
