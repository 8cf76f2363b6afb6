package cloud

import (
	"bytes"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
)

// TestNodeDetailsOfPeers: where a node serves versions, what it exchanged, and that others got wrong bytes from it.
func TestNodeDetailsOfPeers(t *testing.T) {
	for _, c := range []struct {
		peer *api.NodePeer
		want []string
		not  string
	}{
		{nil, nil, "peer"},
		{&api.NodePeer{Address: ":8093", ServedBytes: 3 << 30}, []string{":8093", "3 GiB"}, "wrong bytes"},
		{&api.NodePeer{Address: ":8093", Reports: 1}, []string{"to 1 node, which reads nothing"}, "no node reads"},
		{
			&api.NodePeer{Address: ":8093", Reports: 2, Excluded: true},
			[]string{"to 2 nodes; no node reads"},
			"which reads",
		},
	} {
		var out bytes.Buffer
		node := api.Node{NodeName: "n", Peer: c.peer}
		if err := cli.Format("").Write(&out, node, func(g *cli.Grid) { nodeDetails(g, node) }); err != nil {
			t.Fatal(err)
		}
		for _, text := range c.want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%+v: no %q in\n%s", c.peer, text, out.String())
			}
		}
		if strings.Contains(out.String(), c.not) {
			t.Errorf("%+v: %q in\n%s", c.peer, c.not, out.String())
		}
	}
}
