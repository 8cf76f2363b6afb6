package cpe

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/facebookincubator/nvdtools/wfn"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

func TestOf(t *testing.T) {
	cask := []string{"/opt/homebrew/Caskroom/docker/4.30.0/Docker.app"}
	for _, c := range []struct {
		p    catalog.Package
		want string
	}{
		{
			catalog.Package{Kind: catalog.Brew, Name: "awscli", Version: "2.15.0"},
			"cpe:2.3:a:amazon:aws_cli:2.15.0:*:*:*:*:*:*:*",
		},
		{
			catalog.Package{Kind: catalog.Brew, Name: "openssl@3", Version: "3.0.8_1"},
			"cpe:2.3:a:openssl:openssl:3.0.8:*:*:*:*:*:*:*",
		},
		{
			catalog.Package{Kind: catalog.Brew, Name: "python@3.12", Version: "3.12.1"},
			"cpe:2.3:a:python:python:3.12.1:*:*:*:*:*:*:*",
		},
		{
			catalog.Package{Kind: catalog.Brew, Name: "docker", Version: "26.0.0"},
			"cpe:2.3:a:docker:docker:26.0.0:*:*:*:*:*:*:*",
		},
		{
			catalog.Package{Kind: catalog.Brew, Name: "docker-desktop", Version: "4.30.0,149", Locations: cask},
			"cpe:2.3:a:docker:docker_desktop:4.30.0:*:*:*:*:*:*:*",
		},
		{
			catalog.Package{Kind: catalog.Brew, Name: "tree", Version: "2.1.1"},
			"cpe:2.3:a:tree:tree:2.1.1:*:*:*:*:*:*:*",
		},
		{catalog.Package{
			Kind: catalog.MacOSApp, Name: "Google Chrome", Version: "140.0.1",
			BundleIDs: []string{"com.google.Chrome"},
		}, "cpe:2.3:a:google:chrome:140.0.1:*:*:*:*:*:*:*"},
		{catalog.Package{
			Kind: catalog.MacOSApp, Name: "iCloud", Version: "1.0",
			BundleIDs: []string{"com.apple.iCloud.helper"},
		}, "cpe:2.3:a:apple:icloud:1.0:*:*:*:*:*:*:*"},
		{catalog.Package{
			Kind: catalog.MacOSApp, Name: "iCloud: Nightly", Version: "1.0:7",
			BundleIDs: []string{"com.apple.nightly"},
		}, `cpe:2.3:a:apple:icloud\:_nightly:1.0\:7:*:*:*:*:*:*:*`},
		{catalog.Package{Kind: catalog.MacOSApp, Name: ":a:", Version: ":"}, "cpe:2.3:a:a:a:*:*:*:*:*:*:*:*"},
		{
			catalog.Package{Kind: catalog.Go, Name: "/", Version: "v1.0.0"},
			"cpe:2.3:a:unknown:unknown:1.0.0:*:*:*:*:go:*:*",
		},
		{catalog.Package{
			Kind: catalog.MacOSApp, Name: "Foo Bar", Version: "2.0b1",
			BundleIDs: []string{"org.example.foo"},
		}, "cpe:2.3:a:example:foo_bar:2.0b1:*:*:*:*:*:*:*"},
		{
			catalog.Package{
				Kind: catalog.MacOSApp, Name: "微信", Version: "3.8", BundleIDs: []string{"com.tencent.other"},
			},
			"cpe:2.3:a:tencent:other:3.8:*:*:*:*:*:*:*",
		},
		{
			catalog.Package{Kind: catalog.NPM, Name: "@babel/core", Version: "7.0.0"},
			"cpe:2.3:a:babel:core:7.0.0:*:*:*:*:node.js:*:*",
		},
		{
			catalog.Package{Kind: catalog.Python, Name: "Jinja2", Version: "3.1"},
			"cpe:2.3:a:jinja2:jinja2:3.1:*:*:*:*:python:*:*",
		},
		{
			catalog.Package{Kind: catalog.Gem, Name: "rack", Version: "0.1.8"},
			"cpe:2.3:a:rack:rack:0.1.8:*:*:*:*:ruby:*:*",
		},
		{
			catalog.Package{Kind: catalog.Gem, Name: "rack", Version: "0.1.8-java"},
			"cpe:2.3:a:rack:rack:0.1.8:*:*:*:*:ruby:*:*",
		},
		{
			catalog.Package{Kind: catalog.Java, Name: "org.apache.logging.log4j:log4j-core", Version: "2.14.1"},
			"cpe:2.3:a:apache:log4j-core:2.14.1:*:*:*:*:*:*:*",
		},
		{
			catalog.Package{Kind: catalog.Go, Name: "github.com/gin-gonic/gin/v2", Version: "v1.2.3+incompatible"},
			"cpe:2.3:a:gin-gonic:gin:1.2.3:*:*:*:*:go:*:*",
		},
		{
			catalog.Package{Kind: catalog.Go, Name: "stdlib", Version: "1.22.3"},
			"cpe:2.3:a:golang:go:1.22.3:*:*:*:*:*:*:*",
		},
		{
			catalog.Package{Kind: catalog.Rust, Name: "time", Version: "0.1.0+x"},
			`cpe:2.3:a:time:time:0.1.0\+x:*:*:*:*:rust:*:*`,
		},
		{
			catalog.Package{Kind: catalog.Pod, Name: "SQLCipher", Version: "4.5"},
			"cpe:2.3:a:zetetic:sqlcipher:4.5:*:*:*:*:*:*:*",
		},
		{
			catalog.Package{Kind: catalog.Brew, Name: "xerces-c", Version: "3.2"},
			`cpe:2.3:a:apache:xerces-c\+\+:3.2:*:*:*:*:*:*:*`,
		},
		{
			catalog.Package{Kind: catalog.System, Name: "macOS", Version: "14.5"},
			"cpe:2.3:o:apple:macos:14.5:*:*:*:*:*:*:*",
		},
	} {
		bare := regexp.MustCompile(`:[^:]*:\*:\*$`).ReplaceAllString(c.want, ":*:*:*") // runs anywhere
		if got := ForPackage(c.p); got[0] != bare || !slices.Contains(got, c.want) {
			t.Errorf("%s %s: got %q, want %q, after %q", c.p.Kind, c.p.Name, got, c.want, bare)
		}
	}
}

// Packages of one kind, name and version are merged: none hides the name of another.
func TestEachIdentityIsNamed(t *testing.T) {
	app := func(ids ...string) catalog.Package {
		return catalog.Package{Kind: catalog.MacOSApp, Name: "Firefox", Version: "100.0", BundleIDs: ids}
	}
	brew := func(locations ...string) catalog.Package {
		return catalog.Package{Kind: catalog.Brew, Name: "docker", Version: "4.0", Locations: locations}
	}
	for _, c := range []struct {
		p    catalog.Package
		want string
	}{
		{app("org.mozilla.firefox"), "mozilla:firefox!"},
		{app("com.example.shim", "org.mozilla.firefox"), "mozilla:firefox! example:firefox"},
		{app("", "com.example.shim"), "mozilla:firefox! example:firefox"},
		{app("com.example.a", "com.example.b", "net.mozilla.x"), "example:firefox mozilla:firefox"},
		{
			catalog.Package{
				Kind: catalog.MacOSApp, Name: "Own", Version: "1", BundleIDs: []string{"", "com.example.own"},
			},
			"example:own",
		},
		{brew(), "docker:docker! mobyproject:moby!"},
		{brew("/opt/homebrew/Cellar/docker/4.0/INSTALL_RECEIPT.json"), "docker:docker! mobyproject:moby!"},
		{brew("/opt/homebrew/Caskroom/docker/4.0/Docker.app"), "docker:docker_desktop! docker:desktop!"},
		{
			brew("/opt/homebrew/Caskroom/docker/4.0/Docker.app",
				"/opt/homebrew/Cellar/docker/4.0/INSTALL_RECEIPT.json"),
			"docker:docker_desktop! docker:desktop! docker:docker! mobyproject:moby!",
		},
	} {
		var got []string
		for _, n := range Products(c.p) {
			got = append(got, n.Vendor+":"+n.Product+map[bool]string{true: "!"}[n.Curated])
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s %q %q: got %q, want %q", c.p.Name, c.p.BundleIDs, c.p.Locations, got, c.want)
		}
	}
	many := app()
	for i := range 1000 {
		many.BundleIDs = append(many.BundleIDs, fmt.Sprintf("com.x%d.firefox", i))
	}
	if all, shown := len(Products(many)), len(ForPackage(many)); all != 1000 || shown != maxNames {
		t.Errorf("of 1000 names %d are asked and %d shown", all, shown)
	}
}

// The default of the list of ignored packages is this name, which has to match exactly.
func TestICloudBindsToDefaultExclusion(t *testing.T) {
	for _, id := range []string{"", "com.apple.iCloud", "com.apple.CloudDocs.iCloud"} {
		var uris []string
		for _, c := range ForPackage(catalog.Package{
			Kind: catalog.MacOSApp, Name: "iCloud", Version: "1.0", BundleIDs: []string{id},
		}) {
			a, err := wfn.UnbindFmtString(c)
			if err != nil {
				t.Fatal(err)
			}
			uris = append(uris, a.BindToURI())
		}
		if !slices.Equal(uris, []string{"cpe:/a:apple:icloud:1.0"}) {
			t.Errorf("bundle %q binds to %q", id, uris)
		}
	}
}

func TestTableIsSound(t *testing.T) {
	seen := map[string]bool{}
	for line := range strings.Lines(productsTSV) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) < 3 || len(f) > 4 || len(f) < 4 && f[2] == noProduct ||
			!slices.Contains([]string{"brew", "cask", "app", "name", "pod", "runtime"}, f[0]) {
			t.Errorf("line %q", line)
			continue
		}
		if key := f[0] + f[1]; seen[key] {
			t.Errorf("%s %s stands twice", f[0], f[1])
		} else {
			seen[key] = true
		}
		for pair := range strings.SplitSeq(f[2], ",") {
			if f[2] == noProduct {
				continue
			}
			parts := strings.Split(pair+"::", ":")
			vendor, product, ok := parts[0], parts[1], strings.Count(pair, ":") <= 3
			if !ok || vendor != normalize(vendor) || product != normalize(product) || vendor == "" || product == "" {
				t.Errorf("%s %s: product %q", f[0], f[1], pair)
			}
		}
	}
	if len(seen) < 700 {
		t.Errorf("only %d names", len(seen))
	}
}

// The formulae of a maker of applications say nothing about another formula with the name of one of its products:
// onedrive and blink are not those of Microsoft and Google.
func TestVendorsOfSeveralFormulae(t *testing.T) {
	for vendor, want := range map[string]bool{
		"apache": true, "gnu": true, "nlnetlabs": true, "linuxfoundation": true,
		"microsoft": false, "google": false, "oracle": false, "nektos": false,
	} {
		if got := IsPackagedVendor(vendor); got != want {
			t.Errorf("%s is packaged: %v, want %v", vendor, got, want)
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add("openssl@3", "1.0_1", "com.x.y")
	f.Add("\x00é*?", "", "")
	f.Add("a:b", "1 2", ".")
	f.Fuzz(func(t *testing.T, name, version, id string) {
		for _, k := range append([]catalog.PackageType{catalog.System}, catalog.Kinds...) {
			all := ForPackage(catalog.Package{Kind: k, Name: name, Version: version, BundleIDs: []string{id}})
			if len(all) == 0 {
				t.Fatalf("%s %q has no CPE", k, name)
			}
			for _, c := range all {
				a, err := wfn.UnbindFmtString(c)
				if err != nil || a.BindToFmtString() != c {
					t.Errorf("%s %q: %q: %v", k, name, c, err)
				} else if a.Vendor == wfn.Any || a.Product == wfn.Any {
					t.Errorf("%s %q: %q is anybody's", k, name, c)
				}
			}
		}
	})
}
