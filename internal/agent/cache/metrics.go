package cache

import "github.com/buildyard/buildyard/internal/metric"

// metrics are the counters of a cache since it was opened.
type metrics struct {
	pulls   metric.Results // except those canceled because no caller waited any longer
	evicted metric.Counter
}

// Families returns the metrics of the cache.
func (c *Cache) Families() []metric.Family {
	return []metric.Family{
		c.metrics.pulls.Family("buildyard_node_pulls_total", "Pulls of versions by result"),
		metric.CounterFamily("buildyard_node_evictions_total", "Versions evicted from the cache",
			&c.metrics.evicted),
		metric.GaugeFamily("buildyard_node_pulls_running", "Pulls in progress", func() float64 {
			c.mu.Lock()
			defer c.mu.Unlock()
			return float64(len(c.pulls))
		}),
	}
}

// PulledBytes returns the bytes of layers that were pulled.
func (r *Registry) PulledBytes() int64 { return int64(r.pulledBytes.Value()) }

// Families returns the metrics of the source.
func (r *Registry) Families() []metric.Family {
	return []metric.Family{
		metric.CounterFamily("buildyard_node_pull_bytes_total", "Pulled bytes of layers", &r.pulledBytes),
		metric.CounterFamily("buildyard_node_peer_fetched_bytes_total", "Bytes of versions read from other nodes",
			&r.peerBytes),
	}
}
