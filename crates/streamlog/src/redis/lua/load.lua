-- KEYS: the stream, its events, the session's log. ARGV: after which number
if redis.call('HEXISTS', KEYS[3], 'gone') == 1 then return {'GONE'} end
if redis.call('EXISTS', KEYS[1]) == 0 then return {'NONE'} end
return record(KEYS[1], KEYS[2], tonumber(ARGV[1]))
