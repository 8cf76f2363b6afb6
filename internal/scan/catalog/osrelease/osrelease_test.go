package osrelease

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

const debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\n" +
	"VERSION=\"12 (bookworm)\"\nVERSION_CODENAME=bookworm\nID=debian\nHOME_URL=\"https://www.debian.org/\"\n"

// TestParse: the files are those of the distributions.
func TestParse(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"debian":   {debian, "debian:12"},
		"ubuntu":   {"NAME=\"Ubuntu\"\nVERSION_ID=\"24.04\"\nID=ubuntu\nID_LIKE=debian\n", "ubuntu:24.04"},
		"alpine":   {"NAME=\"Alpine Linux\"\nID=alpine\nVERSION_ID=3.20.3\n", "alpine:3.20"},
		"edge":     {"ID=alpine\nVERSION_ID=3.23_alpha20250612\n", "alpine:3.23"},
		"rhel":     {"NAME=\"Red Hat Enterprise Linux\"\r\nID=\"rhel\"\r\nVERSION_ID=\"9.4\"\r\n", "rhel:9.4"},
		"leap":     {"ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\nVERSION_ID=\"15.5\"\n", "opensuse-leap:15.5"},
		"single":   {"ID='sles'\nVERSION_ID='15.5'\n", "sles:15.5"},
		"last":     {"ID=a\nVERSION_ID=1\nID=b\n", "b:1"},
		"arch":     {"NAME=\"Arch Linux\"\nID=arch\nBUILD_ID=rolling\n", ""},
		"no id":    {"VERSION_ID=1\n", ""},
		"too long": {"ID=" + strings.Repeat("a", 65) + "\nVERSION_ID=1\n", ""},
		"hostile":  {"ID=a:b\nVERSION_ID=1\n", ""},
		"comment":  {"# ID=x\nID=y\nVERSION_ID=2", "y:2"},
		"empty":    {"", ""},
	} {
		if got := parse(tc.text); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestDistribution(t *testing.T) {
	tree := catalogtest.Tree(catalogtest.Files{
		"etc/os-release":                  "-> ../usr/lib/os-release",
		"usr/lib/os-release":              debian,
		"srv/chroot/etc/os-release":       "-> /usr/lib/os-release",
		"srv/chroot/usr/lib/os-release":   "ID=ubuntu\nVERSION_ID=22.04\n",
		"srv/admin/etc/os-release":        "ID=own\nVERSION_ID=1\n",
		"srv/admin/usr/lib/os-release":    "ID=other\nVERSION_ID=1\n",
		"srv/unknown/var/lib/dpkg/status": "",
	})
	for root, want := range map[string]string{
		".": "debian:12", "srv/chroot": "ubuntu:22.04", "srv/admin": "own:1", "srv/unknown": "", "missing": "",
	} {
		if got := Distribution(tree, root); got != want {
			t.Errorf("%s: got %q, want %q", root, got, want)
		}
	}
}

func TestRoot(t *testing.T) {
	suffixes := []string{"var/lib/rpm/Packages", "usr/lib/sysimage/rpm/Packages"}
	for file, want := range map[string]string{
		"var/lib/rpm/Packages": ".", "srv/c/usr/lib/sysimage/rpm/Packages": "srv/c", "xvar/lib/rpm/Packages": "-",
		"lib/rpm/Packages": "-", "src/testdata/var/lib/rpm/Packages": "-",
	} {
		root, ok := Root(file, suffixes...)
		if !ok {
			root = "-"
		}
		if root != want {
			t.Errorf("%s: got %q, want %q", file, root, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(debian)
	f.Add("ID='a'\nVERSION_ID=\"1.2.3\"")
	f.Add("ID=\"\nVERSION_ID='")
	f.Fuzz(func(t *testing.T, text string) {
		got := parse(text)
		if id, version, ok := strings.Cut(got, ":"); got != "" && (!ok || id == "" || version == "" ||
			strings.ContainsAny(got, " \n\"'\x00")) {
			t.Errorf("%q", got)
		}
	})
}
