package dpkg

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/python"
)

const benchPackages, benchFiles = 2000, 100

// makeRoot makes a system with 2,000 packages of 100 files each, of which every tenth has a Python package. Only the
// files of Python packages exist: a walk opens no others.
func makeRoot(b *testing.B) string {
	b.Helper()
	root := b.TempDir()
	write := func(name string, data []byte) {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	var statusText bytes.Buffer
	for i := range benchPackages {
		name := fmt.Sprintf("python3-package%d", i)
		fmt.Fprintf(&statusText, "Package: %s\nStatus: install ok installed\nPriority: optional\nSection: python\n"+
			"Installed-Size: 100\nMaintainer: Somebody <somebody@example.org>\nArchitecture: all\n"+
			"Source: source%d (1.%d-1)\nVersion: 1.%d-1+b1\nDepends: python3:any, libc6 (>= 2.34)\n"+
			"Description: a package\n It has a description\n of two lines.\nHomepage: https://example.org/%d\n\n",
			name, i/2, i, i, i)
		list := bytes.NewBufferString("/.\n/usr\n/usr/lib\n/usr/lib/python3\n/usr/lib/python3/dist-packages\n")
		dir := fmt.Sprintf("usr/lib/python3/dist-packages/package%d-1.%d.dist-info", i, i)
		fmt.Fprintf(list, "/%s\n/%s/METADATA\n", dir, dir)
		for k := range benchFiles - 7 {
			fmt.Fprintf(list, "/usr/lib/python3/dist-packages/package%d/module_%d_with_a_name.py\n", i, k)
		}
		write(infoDir+"/"+name+listSuffix, list.Bytes())
		write(infoDir+"/"+name+sumsSuffix, []byte("0123456789abcdef0123456789abcdef  usr/x\n"))
		if i%10 == 0 {
			write(dir+"/METADATA", fmt.Appendf(nil, "Metadata-Version: 2.1\nName: package%d\nVersion: 1.%d\n", i, i))
		}
	}
	write(statusFile, statusText.Bytes())
	write("etc/os-release", []byte(bookworm))
	return root
}

// BenchmarkOwners shows what the packages of dpkg and the owners of files cost beyond the walk of a system.
func BenchmarkOwners(b *testing.B) {
	root := makeRoot(b)
	for _, bench := range []struct {
		name       string
		extractors []catalog.Extractor
		want       int
	}{
		{"walk", []catalog.Extractor{python.InstalledPackages{}}, benchPackages / 10},
		{"dpkg", []catalog.Extractor{python.InstalledPackages{}, Packages{}}, benchPackages/10 + benchPackages},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				tree, closer, err := catalog.OpenDir(root)
				if err != nil {
					b.Fatal(err)
				}
				r, err := catalog.Scan(b.Context(), tree, catalog.Options{Extractors: bench.extractors})
				_ = closer.Close()
				if err != nil || len(r.Packages) != bench.want {
					b.Fatalf("%d packages, want %d: %v", len(r.Packages), bench.want, err)
				}
				if p := r.Packages[0]; bench.name == "dpkg" && p.Kind == catalog.Python && p.Owner == "" {
					b.Fatalf("%+v", p)
				}
			}
		})
	}
}
