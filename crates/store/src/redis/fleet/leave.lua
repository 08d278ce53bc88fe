-- This replica goes, and says so: nobody need be sure of it. KEYS: alive, parted. ARGV: the net (ms).
redis.call('SET', KEYS[2], 1, 'PX', ARGV[1])
return redis.call('DEL', KEYS[1])
