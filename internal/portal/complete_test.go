package portal_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli/buildyard/cloudtest"
)

// facts checks that a page has a term with a value, which is somewhere in what follows it.
func (s shown) facts(of map[string]string) {
	s.t.Helper()
	for name, value := range of {
		_, after, ok := strings.Cut(s.Text, "<dt>"+name+"</dt>")
		text, _, _ := strings.Cut(after, "</dd>")
		if !ok || value == "" || !strings.Contains(text, value) {
			s.t.Errorf("%s is not %q but %q (there: %t)", name, value, text, ok)
		}
	}
}

// detail is a template as the API has it.
func (w *world) detail(id string) api.TemplateDetail {
	w.t.Helper()
	detail, err := w.API.Template(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return detail
}

// TestNodeHasEverything: what an operator looks for on the page of a node is there, as the API has it.
func TestNodeHasEverything(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	id := w.join("mac", 1)[0].NodeID
	w.start(client.StartRequest{TemplateID: debian, Name: "job", NodeID: id})
	yes := true
	err := w.API.ConfigureNode(t.Context(),
		client.NodeConfig{NodeID: id, Host: "10.1.2.3", Drain: &yes, DrainReason: "new fan"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := w.API.CreateGroup(t.Context(), client.GroupRequest{Name: "ios"})
	if err == nil {
		err = w.API.AddNodeToGroups(t.Context(), id, g.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	n, err := w.API.Node(t.Context(), id)
	if err != nil || n.State != "Drain Mode" || n.StateSince.IsZero() || n.LastUpdated.IsZero() {
		t.Fatalf("%+v, %v", n, err)
	}
	page := w.get("/nodes/" + id)
	page.facts(map[string]string{
		"Host CPU": "%", "Host memory": "%", "Slots": ">1 <small>of 4<", "ID": id,
		"Capacity": `name="max_vm_count"`, "Node groups": "ios</a>",
		"Disk": "free of", "Hypervisor": n.AnkaVersion.Version, "Agent": n.AgentVersion,
	})
	page.has(
		200, "<h1>"+n.NodeName, "<meter", "10.1.2.3", "last contact <time",
		fmt.Sprint(n.HostArch, ", ", n.CPUCount, " CPU"),
		"<b>Draining</b>", "1 VM remains", `for <time datetime="`+n.StateSince.UTC().Format(time.RFC3339), "new fan",
		">Edit</a>", ">Undrain</a>", ">Update agent</a>", ">Delete</a>", ">Change</a>", ">Set</button>",
		">job</a>", `href="/templates/`+debian, ":v2<", "<td>phone</td>", "1-1", " started", "Raw JSON", "Vulnerabilities",
	)
	err = w.API.ConfigureNode(t.Context(), client.NodeConfig{NodeID: id, CapacityMode: "resource"})
	if err != nil {
		t.Fatal(err)
	}
	w.get("/nodes/"+id).has(200, `name="vcpu_override"`, `name="ram_override"`, "Virtual CPUs", "Memory of VMs")
	w.get("/nodes/"+id+"/edit").has(200, `name="name"`, `name="host"`, `name="capacity_mode"`, `name="max_vm_count"`,
		`name="vcpu_override"`, `name="ram_override"`)
}

// TestTemplateHasEverything: tags from the newest to the oldest with the size and the increment of
// each, the nodes that cache them, and the possible actions.
func TestTemplateHasEverything(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	node := w.join("mac", 1)[0]
	w.start(client.StartRequest{TemplateID: debian, Name: "job"})
	at := "/templates/" + debian
	w.await("that the node tells what it holds",
		func() (bool, error) { return strings.Contains(w.get(at).Text, `id="h-`), nil })
	page, detail := w.get(at), w.detail(debian)
	page.facts(map[string]string{
		"ID": debian, "Architecture": "amd64", "Last push": " ago</time>",
		"Last pull": " ago</time>", "Instances": "1 live instance",
	})
	last := 0
	for _, v := range slices.Backward(detail.Versions) {
		i := strings.Index(page.Text, fmt.Sprintf(`<tr id="v-%d"`, v.Number))
		if i <= last {
			t.Fatalf("tag %s is not there, or after an older one", v.Tag)
		}
		last = i
		row, _, _ := strings.Cut(page.Text[i:], "</tr>")
		for _, cell := range []string{
			`<span class="mono">` + v.Tag + "</span>", fmt.Sprintf(`data-l="Size">%d B</td>`, v.Size),
			fmt.Sprintf(`data-l="Increment">%d B</td>`, v.Increment),
		} {
			if !strings.Contains(row, cell) {
				t.Errorf("%s is not in the row of %s: %s", cell, v.Tag, row)
			}
		}
	}
	page.has(200, "1 node<", ">"+node.NodeName+"</a>", "not scanned", ">Prefetch</a>", ">Revert to this</a>",
		">Delete template</a>", ">Remove from node caches</a>", ">Prefetch jobs<")
}

// TestOutputOfRunningScript: what a startup script prints is shown while it runs.
func TestOutputOfRunningScript(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.join("mac", 1)
	ids, err := w.API.Start(t.Context(), client.StartRequest{
		TemplateID: debian, ScriptMonitoring: true,
		StartupScript: []byte("echo step 1; echo error: <b>none >&2; sleep 3600\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.await("its output", func() (bool, error) {
		vm, err := w.API.Instance(t.Context(), ids[0])
		return vm.ScriptOutput != nil && vm.ScriptOutput.Stderr != "", err
	})
	w.get("/instances/"+ids[0]).has(200, ">Startup script</h2>", ">Standard output, last lines</h3>", "step 1\n",
		"<mark>error: &lt;b&gt;none</mark>", "data-running", "!printed nothing")
}

// TestInstanceHasEverything: of one that runs and of one that waits.
func TestInstanceHasEverything(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	node := w.join("mac", 1)[0]
	ids, err := w.API.Start(t.Context(), client.StartRequest{
		TemplateID: debian, Name: "job", ExternalID: "ci-7", Metadata: map[string]any{"branch": "main"},
		TTL:           client.Duration(time.Hour),
		StartupScript: []byte("echo hello\nexit 3\n"), ScriptMonitoring: true, ScriptFailHandler: client.KeepOnFailure,
		Ports: []client.PortRule{{Name: "ssh", GuestPort: 22, HostPort: 10022}},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := ids[0]
	w.await("the script", func() (bool, error) {
		vm, err := w.API.Instance(t.Context(), id)
		return vm.StartupScript != nil && vm.VMInfo != nil, err
	})
	vm, err := w.API.Instance(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	page := w.get("/instances/" + id)
	page.facts(map[string]string{
		"ID": id, "Node": node.NodeName, "Requested": " ago</time>", "External ID": "ci-7",
		"Guest address": vm.VMInfo.IP, "Node address": vm.VMInfo.HostIP,
		"VM": vm.VMInfo.Name, "VM ID": vm.VMInfo.UUID, "ssh": ":10022</span>",
		"branch": "main",
	})
	page.has(200, ">debian</a>", vm.VMInfo.RAM+" of memory", "terminated automatically at <time", "Startup script",
		"exit code 3", ">hello", ">Timeline<", ">Waiting for a slot<", "Failed (Error)", "Raw JSON", ">Terminate</a>",
		"Copy as curl", "to port 22 (tcp)", "/events?q=instance%3A"+id, " by an anonymous caller", "!/logs/node")
	w.get("/events?q=instance:"+id).has(200, " requested ", "!No matching events")

	if _, err := w.API.Start(t.Context(), client.StartRequest{TemplateID: debian, Count: 6}); err != nil {
		t.Fatal(err)
	}
	var waits string
	w.await("one that waits", func() (bool, error) {
		running, err := w.API.Instances(t.Context(), client.ListOptions{Filter: "state:started"})
		list, again := w.API.Instances(t.Context(), client.ListOptions{Filter: "state:scheduling"})
		if again == nil && len(list) > 0 {
			waits = list[0].InstanceID
		}
		return len(running) == 3 && len(list) == 3, err
	})
	w.get("/instances/"+waits).has(200, "Why is it waiting?", ">"+node.NodeName+"</a>", "node is full",
		"of 3 that wait for the same nodes", "none yet")
	dash := w.get("/")
	dash.facts(map[string]string{
		"Active nodes": ">1</a><small>of 1<", "Running instances": ">3<", "Slots used": ">100</a>",
		"Waiting in queue": ">3<", "Registry storage": "<small>",
	})
	dash.has(200, ">Running instances</h2>", ">Waiting in queue</h2>", ">Time to start</h2>", "line p50, dashed p95",
		">Pulled from registries</h2>", "4 of 4, 0 free", "oldest ", `<path class="l" d="`)
	for _, over := range []string{"1h", "6h", "24h", "7d"} {
		w.get("/?range="+over).has(200, `href="/?range=`+over+`" aria-current="true"`)
	}
}

// TestHealthOfADamagedRegistry: what cannot be pulled is named, with what to do, and how far the
// layers are verified.
func TestHealthOfADamagedRegistry(t *testing.T) {
	dir := t.TempDir()
	before, end, err := cloudtest.Open(dir, nil)
	if err == nil {
		err = before.Push(t.Context(), t.TempDir(), debian, "debian", nil)
		end()
	}
	layers, _ := filepath.Glob(filepath.Join(dir, "registry/images_dir/*"))
	if err != nil || len(layers) == 0 {
		t.Fatal(err, layers)
	}
	for _, layer := range layers {
		if err := os.Remove(layer); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, map[string]string{"SVC_REGISTRY_BASE_PATH": filepath.Join(dir, "registry")})
	w.get("/health").has(200, "Version 0 of template debian cannot be pulled: layer file",
		"Version 1 of template debian", "buildyard registry repair", `href="/templates/`+debian, "Layers verified",
		"2 templates and versions are damaged", "1 problem", "!no problems")
	status, err := w.API.Status(t.Context())
	if err != nil || status.RegistryDamaged != 2 {
		t.Errorf("%+v, %v", status, err)
	}
}

// TestHealthOfAHealthyRegistry returns how far the layers are verified, and what the license is.
func TestHealthOfAHealthyRegistry(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.get("/health").facts(map[string]string{
		"Layers verified": "in this round", "License": "enterprise plus, does not expire", "Status": "Running",
	})
}

// TestGroupsFilter: as on other lists.
func TestGroupsFilter(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"ios", "mac"} {
		if _, err := w.API.CreateGroup(t.Context(), client.GroupRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	w.get("/groups?q=name:io*").has(200, "1 group of nodes that match", ">ios<", "!>mac<", "filter=name%3Aio%2A")
	w.get("/groups?q=name:x").has(200, "No matching node groups", "!No node groups yet")
	w.get("/groups?q=colour:red").has(200, "unknown field", `aria-invalid="true"`, "!No group fits",
		"!No node groups yet")
}

// TestPushesAreReported: a page of templates is notified of a push immediately.
func TestPushesAreReported(t *testing.T) {
	w := newWorld(t, nil)
	r, err := http.NewRequestWithContext(t.Context(), "GET", w.URL()+"/live?topics=templates", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Scan() // it is open
	told := make(chan string, 1)
	go func() {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				told <- data
				return
			}
		}
	}()
	w.push(debian, "debian")
	select {
	case data := <-told:
		if data != "templates" {
			t.Errorf("told of %q", data)
		}
	case <-time.After(30 * time.Second):
		t.Error("nothing was told")
	}
}
