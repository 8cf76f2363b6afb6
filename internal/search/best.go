package search

import "slices"

// Best keeps the best matches of many records.
type Best[T any] struct {
	limit   int
	compare func(a, b T) int // orders records with equal ranks
	total   int
	ranked  []Ranked[T] // at most limit, the best first
}

// Ranked is a record with how well it matches.
type Ranked[T any] struct {
	Record T
	Rank   Rank
}

// NewBest returns an empty Best for a number of records, at least 1.
func NewBest[T any](limit int, compare func(a, b T) int) *Best[T] {
	return &Best[T]{limit: limit, compare: compare}
}

// Add adds a record that matches.
func (b *Best[T]) Add(record T, rank Rank) {
	b.total++
	b.keep(Ranked[T]{record, rank})
}

// Merge adds the records of another Best with the same limit.
func (b *Best[T]) Merge(other *Best[T]) {
	b.total += other.total
	for _, one := range other.ranked {
		b.keep(one)
	}
}

func (b *Best[T]) keep(one Ranked[T]) {
	if len(b.ranked) == b.limit && b.order(one, b.ranked[b.limit-1]) >= 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(b.ranked, one, b.order)
	b.ranked = slices.Insert(b.ranked, at, one)
	b.ranked = b.ranked[:min(len(b.ranked), b.limit)]
}

func (b *Best[T]) order(x, y Ranked[T]) int {
	if x.Rank != y.Rank {
		return int(x.Rank) - int(y.Rank)
	}
	return b.compare(x.Record, y.Record)
}

// Total returns how many records were added.
func (b *Best[T]) Total() int { return b.total }

// Ranked returns the best records, the best first.
func (b *Best[T]) Ranked() []Ranked[T] { return b.ranked }
