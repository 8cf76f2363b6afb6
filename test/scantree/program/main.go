// Command program is what scanners find modules in: it uses a few and does nothing of use.
//
// It is not installed anywhere. Invariant: it needs modules that are not of the standard
// library.
package main

import (
	"fmt"

	packageurl "github.com/package-url/packageurl-go"
	"go.yaml.in/yaml/v3"
	"golang.org/x/mod/semver"
)

func main() {
	text, err := yaml.Marshal(map[string]string{
		"canonical": semver.Canonical("v1.2"), "url": (&packageurl.PackageURL{Type: "gem", Name: "a"}).ToString(),
	})
	fmt.Println(string(text), err)
}
