package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// Patterns name packages below the module by directory: "internal/farm" is that
// package alone, "internal/hv/..." also everything below it. "std" is the standard
// library, anything else is an import path or, with "/...", its prefix.

// never is a rule that packages do not import others, directly or indirectly.
type never struct {
	from   []string
	to     []string
	except []string // packages of from that may import them, because of reason
	reason string
}

var nevers = []never{
	{
		from:   []string{"internal/agent/..."},
		to:     []string{"internal/controller/...", "internal/store/...", "internal/portal/..."},
		reason: "an agent is installed alone on a node: it knows the controller by the API only",
	},
	{
		from: []string{"internal/controller/..."}, to: []string{"internal/agent/...", "internal/hv/..."},
		reason: "a controller starts nothing itself: nodes do, and are asked through the link",
	},
	{
		from:   []string{"internal/registry/..."},
		to:     []string{"internal/controller/...", "internal/store/...", "internal/agent/...", "internal/hv/..."},
		reason: "a registry runs alone, and the controller is one of its clients",
	},
	{
		from: []string{"internal/scan/..."}, to: []string{
			"internal/controller/...", "internal/agent/...", "internal/store/...", "internal/registry/...",
			"internal/sched/...", "internal/hv/...", "internal/portal/...", "internal/transfer/...",
		},
		reason: "the scanners run outside a cloud: of the control plane they know layout and blob",
	},
	{
		from: []string{
			"internal/store/...", "internal/blob/...", "internal/hv/...", "internal/transfer/...",
			"internal/layout/...",
		},
		to: []string{
			"internal/controller/...", "internal/registry/...", "internal/agent/...", "internal/rest/...",
			"internal/portal/...", "internal/cli/...",
		},
		reason: "imports go downwards: what stores, moves and starts does not know who asks",
	},
	{
		from:   []string{"internal/controller/...", "internal/registry/...", "internal/agent/...", "internal/scan/..."},
		to:     []string{"internal/rest/...", "internal/portal/...", "internal/cli/...", "cmd/..."},
		reason: "imports go downwards: a use case does not know the protocol that asks for it",
	},
	{
		from: []string{"internal/rest/hostrest/...", "internal/cli/hostscan", "cmd/hostscan"}, to: []string{
			"internal/controller/...", "internal/agent/...", "internal/store/...", "internal/registry/...",
			"internal/sched/...",
			"internal/hv/...", "internal/portal/...", "internal/transfer/...", "internal/rest", "internal/auth/...",
			"internal/cli/cloud",
		},
		reason: "the host scanner runs on hosts outside a cloud, as a small process that is idle: it knows " +
			"no users and no control plane",
	},
	{
		from: []string{"internal/...", "client/...", "api/..."}, to: []string{"cmd/...", "test/..."},
		reason: "commands wire packages, never the other way round",
	},
}

// only lists everything that packages may import directly.
type only struct {
	from   []string
	to     []string
	reason string
}

// controllerPart is the reason of the rules for the parts of the controller.
const controllerPart = "a part of the controller needs the records and what it is given, never the controller or " +
	"another part"

var onlys = []only{
	{[]string{"internal/farm"}, []string{"std"}, "the domain depends on nothing, so that everything can depend on it"},
	{[]string{"api/..."}, []string{"std", "api/..."}, "wire types are shared with programs that are not ours"},
	{
		[]string{"client/..."},
		[]string{"std", "api", "client/...", "github.com/coder/websocket"},
		"a program that imports the SDK gets every module that the SDK requires",
	},
	{[]string{"internal/controller/record"}, []string{
		"std", "api", "internal/farm", "internal/store", "github.com/google/uuid",
	}, "records are below every part of the controller"},
	{[]string{"internal/controller/lockorder"}, []string{"std"}, "locks of every part have a place in it"},
	{[]string{"internal/controller/macpool"}, []string{
		"std", "internal/controller/lockorder", "internal/controller/record", "internal/farm", "internal/store",
	}, controllerPart},
	{[]string{
		"internal/controller/console",
	}, []string{
		"std", "api", "internal/controller/lockorder", "internal/controller/nodeinput",
		"internal/controller/record", "internal/farm", "internal/metric", "internal/store",
	}, controllerPart},
	{[]string{"internal/controller/groups"}, []string{
		"std", "api", "internal/controller/nodeinput", "internal/controller/record", "internal/farm", "internal/store",
		"github.com/google/uuid",
	}, controllerPart},
	{[]string{"internal/controller/usage"}, []string{
		"std", "api", "internal/controller/lockorder",
		"internal/controller/record", "internal/farm", "internal/metric", "internal/store",
	}, controllerPart},
	{[]string{"internal/controller/cachejobs"}, []string{
		"std", "api", "internal/controller/record", "internal/farm", "internal/metric", "internal/store",
		"github.com/google/uuid",
	}, controllerPart},
	{[]string{"internal/controller/nodes"}, []string{
		"std", "api", "internal/controller/nodeinput", "internal/controller/record", "internal/farm",
		"internal/sched", "internal/store", "github.com/google/uuid",
	}, controllerPart},
	{[]string{"internal/controller/tokenscope"}, []string{
		"std", "api", "internal/auth", "internal/controller/record", "internal/farm",
	}, controllerPart},
	{[]string{"internal/controller/nodescans"}, []string{
		"std", "api", "internal/controller/lockorder", "internal/controller/record", "internal/controller/vulntext",
		"internal/farm", "internal/store",
	}, controllerPart},
	{[]string{"internal/controller/findings"}, []string{
		"std", "api", "internal/controller/record", "internal/controller/vulntext", "internal/farm", "internal/store",
		"github.com/google/uuid",
	}, controllerPart},
	{[]string{"internal/controller/vulntext"}, []string{"std", "api", "internal/farm"}, "it is the form of a text"},
	{[]string{"internal/controller/election"}, []string{
		"std", "internal/controller/record", "internal/store",
	}, controllerPart},
	{[]string{"internal/controller/instances"}, []string{
		"std", "api", "internal/controller/lockorder", "internal/controller/record", "internal/farm", "internal/store",
	}, controllerPart},
	{[]string{"internal/controller/saves"}, []string{
		"std", "api", "internal/controller/record", "internal/farm", "internal/store", "github.com/google/uuid",
	}, controllerPart},
	{[]string{"internal/controller/instancestatus"}, []string{
		"std", "api", "internal/controller/nodeinput", "internal/controller/record", "internal/farm", "internal/store",
	}, controllerPart},
	{[]string{"internal/controller/admission"}, []string{
		"std", "internal/controller/record", "internal/farm",
	}, controllerPart},
	{[]string{
		"internal/controller/maintenance", "internal/controller/idempotency", "internal/controller/history",
	}, []string{
		"std", "internal/controller/record", "internal/farm", "internal/store",
	}, controllerPart},
	{[]string{
		"internal/controller/placement",
	}, []string{
		"std", "internal/controller/lockorder", "internal/controller/record", "internal/farm", "internal/metric",
		"internal/sched", "internal/store", "github.com/google/uuid",
	}, controllerPart},
	{[]string{"internal/controller/templates"}, []string{
		"std", "api", "internal/auth", "internal/controller/record", "internal/farm", "internal/store",
		"internal/transfer", "github.com/google/uuid",
	}, controllerPart},
	{[]string{"internal/controller/alarms"}, []string{
		"std", "api", "internal/bytesize", "internal/controller/record", "internal/farm", "internal/store",
	}, controllerPart},
	{[]string{"internal/controller/outages"}, []string{
		"std", "api", "internal/controller/record", "internal/farm",
	}, controllerPart},
	{[]string{"internal/controller/payloads"}, []string{
		"std", "api", "internal/controller/record", "internal/farm", "internal/store",
	}, controllerPart},
	{[]string{"internal/controller/adoption"}, []string{
		"std", "api", "internal/controller/record", "internal/farm", "internal/store",
	}, controllerPart},
	{[]string{"internal/controller/agentupdate"}, []string{
		"std", "api", "internal/controller/record", "internal/farm", "internal/store", "github.com/google/uuid",
	}, controllerPart},
	{[]string{
		"internal/controller/nodelink",
	}, []string{
		"std", "api", "internal/controller/lockorder", "internal/controller/nodeinput",
		"internal/controller/record", "internal/farm", "internal/sched", "internal/store",
		"github.com/google/uuid",
	}, controllerPart},
	{[]string{"internal/controller/reconcile"}, []string{
		"std", "api", "internal/controller/record", "internal/farm", "internal/store",
	}, controllerPart},
	{[]string{"internal/controller/events"}, []string{
		"std", "api", "internal/controller/record", "internal/farm", "internal/retry", "internal/store",
	}, controllerPart},
	{[]string{
		"internal/portal/...",
	}, []string{
		"std", "api", "client", "internal/bytesize", "internal/farm", "internal/portal/...", "github.com/google/uuid",
		"github.com/klauspost/compress/gzhttp",
	}, "the portal is a client of the API: what it shows, every other client can show. The domain has the names of " +
		"states, which the API has as texts"},
	{
		[]string{"internal/loadgen"},
		[]string{"std", "api"},
		"the load of a controller comes from clients, who know nothing but its API",
	},
	{
		[]string{"internal/sched"},
		[]string{"std", "internal/bytesize", "internal/farm"},
		"decisions are pure: they need the domain and nothing else",
	},
	{[]string{"internal/filter"}, []string{"std"}, "one language for all who filter, so that it brings nothing along"},
	{
		[]string{"internal/qcow2"},
		[]string{"std", "github.com/klauspost/compress/..."},
		"drivers, transfers and scanners read images with it, so it brings nothing along",
	},
	{
		[]string{"internal/license"},
		[]string{"std", "internal/farm"},
		"controllers, nodes and scanners verify licenses with it, so it has no other dependencies",
	},
	{
		[]string{"internal/auth"},
		[]string{
			"std", "internal/farm", "api",
		},
		"access is decided the same way everywhere: stores come in through its interfaces, protocols stay " +
			"outside",
	},
	{[]string{"internal/auth/authstore"}, []string{
		"std", "api", "internal/auth", "internal/periodic", "internal/farm", "internal/store",
	}, "tables of what internal/auth keeps: it decides nothing itself, so it needs no more"},
	{
		[]string{"internal/auth/authfile"},
		[]string{"std", "internal/auth", "internal/periodic", "internal/farm"},
		"files of a registry that runs alone: it brings nothing along",
	},
	{
		[]string{"internal/auth/certs"},
		[]string{"std", "internal/farm"},
		"every service and the node's interface know callers by it, so it brings nothing along",
	},
	{[]string{"internal/rest/authrest"}, []string{
		"std", "api", "internal/auth", "internal/auth/oidc", "internal/farm", "internal/rest",
	}, "both services have it, so that it knows neither"},
	{
		[]string{
			"internal/auth/oidc",
		},
		[]string{
			"std", "internal/auth", "internal/farm", "internal/retry", "github.com/coreos/go-oidc/v3/oidc",
			"github.com/go-jose/go-jose/v4", "golang.org/x/oauth2",
		},
		"it needs to know the provider's protocol and nothing of those who log in",
	},
	{[]string{
		"internal/rest/hostrest",
	}, []string{
		"std", "api", "internal/metric", "internal/rest/hostrest/encode", "internal/scan/host",
		"golang.org/x/net/netutil",
	}, "the API of the host scanner translates and decides nothing"},
	{[]string{"internal/periodic"}, []string{"std", "internal/retry"}, "it knows nothing of its callers"},
	{
		[]string{"internal/retry"},
		[]string{"std", "github.com/cenkalti/backoff/v5"},
		"everything that tries again uses it, so it brings nothing along",
	},
	{[]string{"internal/metric"}, []string{"std"}, "every component has metrics, so it has no other dependencies"},
	{
		[]string{"internal/scan/watch"},
		[]string{"std", "golang.org/x/sys/unix", "github.com/ebitengine/purego"},
		"it says where something changed, whatever that means: it brings no package kinds along",
	},
	{
		[]string{"internal/layout"},
		[]string{"std", "internal/farm", "internal/layout/...", "go.yaml.in/yaml/v3"},
		"registry and scanners share the layout, so it brings nothing along",
	},
}

// holder names the only packages that may import certain others.
type holder struct {
	what   []string
	who    []string
	reason string
}

var holders = []holder{
	{[]string{"os/exec"}, []string{
		"internal/hv/...", "internal/selfexec/...", "internal/tools/xfstest", "internal/tools/mutants",
		"internal/tools/dist",
		"internal/agent/service", "internal/agent/hostcheck", "internal/agent/keepawake",
	}, "other programs are started in a few places that can be reviewed"},
	{
		[]string{"go.etcd.io/..."},
		[]string{"internal/store/etcd/...", "internal/scan/..."},
		"etcd is one backend of the store (the host scanner's package inventory is bbolt)",
	},
	{
		[]string{"github.com/google/osv-scalibr/..."},
		[]string{"internal/scan/..."},
		"only the scanners know how package managers write",
	},
	{
		[]string{"github.com/spf13/cobra/..."},
		[]string{"internal/cli/...", "cmd/..."},
		"a command's logic does not know the library that parses its flags",
	},
	{
		[]string{"github.com/ebitengine/purego/..."},
		[]string{"internal/scan/watch"},
		"functions of the system are called without a compiler's checks in one place",
	},
	{
		[]string{"net/http/pprof", "expvar"},
		[]string{"internal/obs/..."},
		"importing these registers handlers on a global mux",
	},
	{
		[]string{"github.com/prometheus/..."},
		[]string{"internal/obs/...", "internal/store/etcd/..."},
		"metrics are registered in one place",
	},
	{
		[]string{"github.com/coreos/go-oidc/...", "github.com/go-jose/...", "golang.org/x/oauth2/..."},
		[]string{"internal/auth/oidc"},
		"tokens of identity providers are verified in one place",
	},
	{[]string{"github.com/ory/..."}, nil, "an identity provider is for tests: it brings half a hundred modules along"},
	{[]string{"github.com/coder/websocket/..."}, []string{
		"client", "internal/rest/controllerrest", "internal/agent/nodeapi",
	}, "WebSockets carry the screens of VMs and nothing else: both ends of that, and the client's"},
	{
		[]string{"github.com/cenkalti/backoff/..."},
		[]string{"internal/retry"},
		"delays between attempts have jitter and a maximum in one place",
	},
	{
		[]string{"golang.org/x/crypto/ssh/..."},
		[]string{"internal/hv/guestssh"},
		"host keys are unchecked there, which is right for guests of this host alone",
	},
	{
		[]string{"gopkg.in/natefinch/lumberjack.v2"},
		[]string{"internal/cli/hostscan"},
		"only a program that runs without a supervisor keeps files of its log",
	},
	{[]string{"testing", "pgregory.net/rapid", "github.com/google/go-cmp/..."}, nil, "products carry no test code"},
}

// matches reports whether a directory or an import path falls under a pattern.
func matches(pattern, name string) bool {
	if pattern == "std" {
		return isStandard(name)
	}
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == prefix || strings.HasPrefix(name, prefix+"/")
	}
	return name == pattern
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// isStandard reports whether an import path is of the standard library: no dot in its first part.
// Bare directories of this module are never passed to it.
func isStandard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".") &&
		!slices.Contains([]string{"api", "client", "cmd", "internal", "test"}, first)
}

// local turns an import path into a directory of the module.
func local(path string) string {
	return strings.TrimPrefix(path, module+"/")
}

// edges returns the direct imports of every product package, with their positions.
func edges(t *tree) map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, f := range t.product() {
		if out[f.dir] == nil {
			out[f.dir] = map[string]string{}
		}
		for _, i := range f.imports() {
			out[f.dir][local(i)] = f.path
		}
	}
	return out
}

// checkNever follows imports through the module and lists the import chains that lead to a
// forbidden package.
func checkNever(t *tree, r never) []string {
	graph := edges(t)
	var out []string
	for _, from := range slices.Sorted(maps.Keys(graph)) {
		if !matchesAny(r.from, from) || matchesAny(r.except, from) {
			continue
		}
		came := map[string]string{from: ""}
		for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
			at := queue[0]
			if matchesAny(r.to, at) && at != from && !matchesAny(r.from, at) {
				out = append(out, way(came, at))
				continue
			}
			for _, next := range slices.Sorted(maps.Keys(graph[at])) {
				if _, seen := came[next]; !seen {
					came[next] = at
					queue = append(queue, next)
				}
			}
		}
	}
	return out
}

// way formats the import chain that led to a package.
func way(came map[string]string, to string) string {
	steps := []string{to}
	for at := came[to]; at != ""; at = came[at] {
		steps = append(steps, at)
	}
	slices.Reverse(steps)
	return strings.Join(steps, " -> ")
}

func checkOnly(t *tree, r only) []string {
	var out []string
	for from, to := range edges(t) {
		if !matchesAny(r.from, from) {
			continue
		}
		for pkg, file := range to {
			if !matchesAny(r.to, pkg) {
				out = append(out, file+" imports "+pkg)
			}
		}
	}
	slices.Sort(out)
	return out
}

// checkSDK lists imports of the SDK, also in its tests, from the module of the programs, which would then be required
// by each module of the SDK.
func checkSDK(t *tree) []string {
	var out []string
	for _, f := range t.files {
		if !inSDK(f.dir) {
			continue
		}
		for _, pkg := range f.imports() {
			if dir := local(pkg); dir != pkg && !inSDK(dir) {
				out = append(out, f.path+" imports "+dir)
			}
		}
	}
	return out
}

func inSDK(dir string) bool {
	return slices.ContainsFunc(sdkModules, func(m string) bool { return matches(m+"/...", dir) })
}

func checkHolder(t *tree, r holder) []string {
	var out []string
	for from, to := range edges(t) {
		if matchesAny(r.who, from) {
			continue
		}
		for pkg, file := range to {
			if matchesAny(r.what, pkg) {
				out = append(out, file+" imports "+pkg)
			}
		}
	}
	slices.Sort(out)
	return out
}

// impure are imports that a pure package must not have, and the functions of package time that read
// a clock.
var (
	impure = []string{
		"context", "log/...", "os/...", "net/...", "io/fs", "math/rand/...", "crypto/rand", "sync/...",
		"runtime/...", "syscall", "unsafe",
	}
	clocks = []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer", "Sleep"}
)

// checkPure lists what would make the results of a package depend on more than its arguments.
func checkPure(t *tree, dir string) []string {
	var out []string
	for _, f := range t.product() {
		if f.dir != dir {
			continue
		}
		for _, i := range f.imports() {
			if matchesAny(impure, i) {
				out = append(out, f.path+" imports "+i)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if id, ok := n.X.(*ast.Ident); ok && id.Name == "time" && slices.Contains(clocks, n.Sel.Name) {
					out = append(out, fmt.Sprintf("%s uses time.%s", t.where(n.Pos()), n.Sel.Name))
				}
			case *ast.GoStmt:
				out = append(out, t.where(n.Pos())+" starts a goroutine")
			}
			return true
		})
	}
	return out
}

func TestImports(t *testing.T) {
	tr := theTree(t)
	for _, r := range nevers {
		report(t, fmt.Sprintf("%v never import %v, since %s", r.from, r.to, r.reason), checkNever(tr, r))
	}
	for _, r := range onlys {
		report(t, fmt.Sprintf("%v import only %v, since %s", r.from, r.to, r.reason), checkOnly(tr, r))
	}
	for _, r := range holders {
		report(t, fmt.Sprintf("only %v import %v, since %s", r.who, r.what, r.reason), checkHolder(tr, r))
	}
	report(t, "the modules of the SDK do not require that of the programs", checkSDK(tr))
	for _, dir := range []string{"internal/sched", "internal/farm"} {
		report(t, dir+" is pure, so that equal input gives equal output and every case can be tested",
			checkPure(tr, dir))
	}
}

// small returns a tree of a few files.
func small(t *testing.T, files map[string]string) *tree {
	t.Helper()
	fsys, names := fstest.MapFS{}, []string{}
	for n, text := range files {
		fsys[n] = &fstest.MapFile{Data: []byte(text)}
		names = append(names, n)
	}
	out, err := parse(fsys, names)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestImportRulesCatch(t *testing.T) {
	bad := small(t, map[string]string{
		"internal/agent/a.go":       "package agent\nimport _ \"" + module + "/internal/x\"\n",
		"internal/agent/a_test.go":  "package agent\nimport _ \"" + module + "/internal/portal\"\n",
		"internal/x/x.go":           "package x\nimport _ \"" + module + "/internal/store/mem\"\n",
		"internal/store/mem/mem.go": "package mem\nimport _ \"os/exec\"\n",
		"internal/farm/f.go": "package farm\nimport (\n_ \"fmt\"\n_ \"example.test/y\"\n_ \"" + module +
			"/internal/x\"\n)\n",
		"internal/sched/s_linux.go": "package sched\nimport (\n_ \"log/slog\"\n\"time\"\n)\nfunc f() { go f(); " +
			"time.Sleep(time.Since(time.Time{})) }\n",
		"internal/hv/hvtest/h.go":  "package hvtest\nimport _ \"testing\"\n",
		"internal/x/testdata/x.go": "package broken\nimport _ \"os/exec\"\n",
		"api/go.mod":               "module " + module + "/api\n",
		"api/a.go":                 "package api\nimport _ \"" + module + "/client\"\n",
		"api/a_test.go":            "package api\nimport _ \"" + module + "/internal/x\"\n",
		"test/go.mod":              "module other\n",
		"test/x.go":                "package other\nimport _ \"os/exec\"\n",
	})
	expect(t, checkNever(bad, nevers[0]), "internal/agent -> internal/x -> internal/store/mem")
	expect(t, checkOnly(bad, onlys[0]), "internal/farm/f.go imports example.test/y",
		"internal/farm/f.go imports internal/x")
	expect(t, checkOnly(bad, onlys[1]), "api/a.go imports client")
	expect(t, checkSDK(bad), "api/a_test.go imports internal/x")
	expect(t, checkHolder(bad, holders[0]), "internal/store/mem/mem.go imports os/exec")
	expect(t, checkHolder(bad, holders[len(holders)-1]))
	expect(t, checkPure(bad, "internal/sched"),
		"internal/sched/s_linux.go imports log/slog", "internal/sched/s_linux.go:6 starts a goroutine",
		"internal/sched/s_linux.go:6 uses time.Sleep", "internal/sched/s_linux.go:6 uses time.Since")
}
