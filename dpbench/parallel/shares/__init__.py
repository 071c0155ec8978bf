"""The lanes' shares of a batch: chunk sizes, and the choice by measuring."""
