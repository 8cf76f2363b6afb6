package reach

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/executable"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// TestImportPath: a module that replaces another one has its import paths in a program.
func TestImportPath(t *testing.T) {
	module := func(name, path string) executable.GoModule {
		return executable.GoModule{Package: catalog.Package{Name: name}, Path: path}
	}
	for _, tc := range []struct {
		module     executable.GoModule
		path, want string
	}{
		{module("a.test/m", "a.test/m"), "a.test/m/x", "a.test/m/x"},
		{module("b.test/fork/v2", "a.test/m"), "b.test/fork/v2/x", "a.test/m/x"},
		{module("b.test/fork", "a.test/m"), "b.test/fork", "a.test/m"},
		{module("stdlib", ""), "net/http", "net/http"},
		{module("a.test/m", "a.test/m"), "c.test/x", "c.test/x"},
	} {
		if got := importPath(tc.module, tc.path); got != tc.want {
			t.Errorf("%s by %s: %s, want %s", tc.module.Path, tc.module.Package.Name, got, tc.want)
		}
	}
}

// TestDecide: what was found counts also after an incomplete reading, what was not found does not.
func TestDecide(t *testing.T) {
	many, first := map[string]bool{}, []string{}
	for i := range 20 {
		many["f"+strconv.Itoa(100+i)] = true
	}
	for i := range maxFunctions {
		first = append(first, "f"+strconv.Itoa(100+i))
	}
	found := map[string]bool{"a.F": true}
	for name, tc := range map[string]struct {
		result     result
		incomplete bool
		want       match.LinkState
	}{
		"found":            {result{functions: found, hasModule: true}, false, match.LinkState{State: match.Linked}},
		"found before":     {result{functions: found, hasModule: true}, true, match.LinkState{State: match.Linked}},
		"found in part":    {result{functions: found, isPart: true}, false, match.LinkState{State: match.Linked}},
		"not found":        {result{hasModule: true}, false, match.LinkState{State: match.NotLinked}},
		"not read":         {result{hasModule: true}, true, match.LinkState{State: match.LinkUnknown}},
		"not found, part":  {result{hasModule: true, isPart: true}, false, match.LinkState{State: match.LinkUnknown}},
		"in no program":    {result{}, false, match.LinkState{State: match.LinkUnknown}},
		"many of them too": {result{functions: many}, false, match.LinkState{State: match.Linked, Functions: first}},
	} {
		if len(tc.result.functions) == 1 {
			tc.want.Functions = []string{"a.F"}
		}
		var got match.LinkState
		tc.result.decide(&got, tc.incomplete)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
