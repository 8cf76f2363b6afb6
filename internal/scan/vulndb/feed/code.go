package feed

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// osvImport is a package of Go with vulnerable code, as Go's vulnerability database writes it
// (https://go.dev/doc/security/vuln/database).
type osvImport struct {
	Path    string   `json:"path"`
	Symbols []string `json:"symbols"`
	GOOS    []string `json:"goos"`
	GOARCH  []string `json:"goarch"`
}

// lenientImports is a list of packages, or empty for a value of another type.
type lenientImports []osvImport

// UnmarshalJSON accepts a list and ignores any other value.
func (l *lenientImports) UnmarshalJSON(b []byte) error {
	var list []osvImport
	if json.Unmarshal(b, &list) == nil {
		*l = list
	}
	return nil
}

// moduleCode is the vulnerable code that one record names, by module.
type moduleCode map[string][]vulndb.AffectedCode

// add adds an entry of a record about a module of Go. One without packages counts too: other entries of the module
// do not say what is vulnerable in its versions.
func (m moduleCode) add(a *osvAffected, ranges []vulndb.Range) {
	var code vulndb.AffectedCode
	for _, i := range a.Distro.Imports {
		code.Packages = append(code.Packages, vulndb.CodePackage{
			Path: i.Path, Symbols: sortedUnique(i.Symbols), GOOS: sortedUnique(i.GOOS), GOARCH: sortedUnique(i.GOARCH),
		})
	}
	code.Ranges = ranges
	m[a.Package.Name] = append(m[a.Package.Name], code)
}

// addCode adds the code to a record. Ranges are stored only where a module has different code in different versions.
func (m moduleCode) addCode(r *Record) {
	for _, module := range slices.Sorted(maps.Keys(m)) {
		list := m[module]
		if !slices.ContainsFunc(list, func(a vulndb.AffectedCode) bool { return len(a.Packages) > 0 }) {
			continue
		}
		if len(list) == 1 {
			list[0].Ranges = nil
		}
		code := vulndb.AdvisoryCode{ID: r.ID, Module: module, Code: list}
		if bad := code.Problem(); bad != "" {
			r.addRejection(fmt.Sprintf("%.60s: the vulnerable code is not used: %s", module, bad))
			continue
		}
		r.Code = append(r.Code, code)
	}
}
