package archtest

import (
	"fmt"
	"go/ast"
	"slices"
	"testing"
)

// interfaceLimit is the maximum number of methods that an interface declares, embedded ones counted as one.
const interfaceLimit = 6

// largeInterfaces are the interfaces over the limit, each with the reason.
var largeInterfaces = map[string]string{
	"internal/agent.Templates": "one implementation, localtemplate with the cache; the fake simulates all of it",
	"internal/blob.Store": "layers, their parts and their trash must be in one store, since one operation " +
		"moves a layer between them",
	"internal/cli/cloud.keyAPI": "the commands work on the API or on a directory, and each has all operations " +
		"on keys and permissions",
	"internal/hv.Driver": "a hypervisor is supported as a whole; optional parts have interfaces that a " +
		"driver may implement",
	"internal/store.Backend": "a backend with transactions but without leases or watches cannot carry " +
		"the controller",
	"internal/store.AnyTable": "it hides the record type of a table from the store, which calls each method",
}

// checkInterfaces lists interfaces outside tests that declare more methods than the limit, and exceptions that no
// interface needs. It looks at every interface type, also one without a name in a field or parameter.
func checkInterfaces(t *tree, exceptions map[string]string) []string {
	var out []string
	used := map[string]bool{}
	for _, f := range t.files {
		if f.test {
			continue
		}
		names := map[*ast.InterfaceType]string{}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if i, ok := n.Type.(*ast.InterfaceType); ok {
					names[i] = n.Name.Name
				}
			case *ast.InterfaceType:
				count := 0
				for _, m := range n.Methods.List {
					count += max(1, len(m.Names))
				}
				if count <= interfaceLimit {
					break
				}
				name := f.dir + "." + names[n]
				if used[name] = exceptions[name] != ""; !used[name] {
					out = append(out, fmt.Sprintf("%s: %s has %d methods, the limit is %d", t.where(n.Pos()), name,
						count, interfaceLimit))
				}
			}
			return true
		})
	}
	for name := range exceptions {
		if !used[name] {
			out = append(out, name+" is an exception that is no longer needed")
		}
	}
	slices.Sort(out)
	return out
}

func TestInterfaces(t *testing.T) {
	report(t, "an interface is small, so that another implementation and a fake are cheap",
		checkInterfaces(theTree(t), largeInterfaces))
}

func TestInterfaceRuleCatches(t *testing.T) {
	tr := small(t, map[string]string{
		"a/a.go": "package a\ntype Large interface { A(); B(); C(); D(); E(); F(); G() }\n" +
			"type Small interface { A(); B(); C(); D(); E(); F() }\n" +
			"type Excused interface { Small; B(); C(); D(); E(); F(); G() }\n" +
			"var x interface { A(); B(); C(); D(); E(); F(); G(); H() }\n",
	})
	expect(t, checkInterfaces(tr, map[string]string{"a.Excused": "it is one", "a.Small": "it was large"}),
		"a.Small is an exception that is no longer needed",
		"a/a.go:2: a.Large has 7 methods, the limit is 6",
		"a/a.go:5: a. has 8 methods, the limit is 6")
}
